"""The registry of engines, metrics, faults and reports; a name registered twice is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackgate.metrics.inputs import checked_inputs
from rackgate.metrics.layers import layer_of_inputs
from rackgate.metrics.metric import MeasureFunction, Metric
from rackgate.metrics.probed import metrics_of_probes
from rackgate.nouns.engine import Launcher
from rackgate.nouns.fault import FaultFactory
from rackgate.nouns.measurement import Layer
from rackgate.probes.probe import Probe


class RegisteredTwice(Exception):
    """Two plugins claim one name."""


@dataclass(slots=True)
class Registry:
    """Everything that hooks registered, by name."""

    launchers: dict[str, Launcher] = field(default_factory=dict)
    check_settings: dict[str, Callable[[Mapping[str, object]], list[str]]] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)
    faults: dict[str, FaultFactory] = field(default_factory=dict)
    reports: dict[str, Callable[[Any], str]] = field(default_factory=dict)
    _owners: dict[tuple[str, str], str] = field(default_factory=dict)

    def add_engine(
        self, name: str, launcher: Launcher, check_settings: Callable[[Mapping[str, object]], list[str]]
    ) -> None:
        """Register a launcher and the function that checks its settings."""
        self._claim("engine", name, launcher)
        self.launchers[name] = launcher
        self.check_settings[name] = check_settings

    def add_metric(
        self,
        name: str,
        unit: str,
        function: MeasureFunction,
        *,
        statistics: tuple[str, ...] = (),
        windows: tuple[str, ...] = (),
        needs_load: bool = False,
        inputs: tuple[str, ...] = (),
        layer: str = "",
        vendor: str = "",
    ) -> None:
        """Register a metric with its unit; the function's docstring is its definition.

        `layer` is where its failure lives, if its inputs do not say it; `vendor` the only one whose cards are
        asked, if so. Raises `UnknownInput` for an input of no known kind, `ValueError` for no known layer.
        """
        self._claim("metric", name, function)
        self.metrics[name] = Metric(
            name=name,
            unit=unit,
            function=function,
            owner=self._owners["metric", name],
            statistics=statistics,
            windows=windows,
            needs_load=needs_load,
            inputs=checked_inputs(name, inputs),
            layer=Layer(layer) if layer else layer_of_inputs(_made_from(inputs, needs_load)),
            vendor=vendor,
        )

    def add_probes(self, probes: Mapping[str, Probe]) -> None:
        """Register the metrics of an acceptance file's probes; no other plugin's name looks like theirs."""
        self.metrics.update(metrics_of_probes(probes.values()))

    def add_fault(self, name: str, factory: FaultFactory) -> None:
        """Register a kind of fault."""
        self._claim("fault", name, factory)
        self.faults[name] = factory

    def add_report(self, name: str, render: Callable[[Any], str]) -> None:
        """Register a view by its file name."""
        self._claim("report", name, render)
        self.reports[name] = render

    def _claim(self, kind: str, name: str, owner: object) -> None:
        named = owner if hasattr(owner, "__qualname__") else type(owner)
        full_name = f"{named.__module__}.{named.__qualname__}"
        if (kind, name) in self._owners:
            raise RegisteredTwice(
                f"{kind} '{name}' is registered by {self._owners[kind, name]} and by {full_name}"
            )
        self._owners[kind, name] = full_name


def _made_from(inputs: tuple[str, ...], needs_load: bool) -> tuple[str, ...]:  # noqa: FBT001
    return inputs or (("samples",) if needs_load else ())
