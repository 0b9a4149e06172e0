"""A metric: its name, unit, definition and the function that computes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rackgate.metrics.observation import Observation
from rackgate.nouns.measurement import Layer, Measurement, Reason, missing
from rackgate.nouns.slo import Scope, Slo

MeasureFunction = Callable[[Observation, Slo, str], Measurement]
"""Computes a row's metric for one entity; never raises for what the rack did."""


class Register(Protocol):
    """`register(name, unit, function)`, with what a row may ask of the metric."""

    def __call__(
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
        """Register one metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A registered metric. Its definition is the function's docstring and stands beside each number.

    A row that asks for another statistic or window, or that names no load where the metric
    `needs_load`, is refused. A metric without `statistics` or `windows` does not tell: any is taken.
    `inputs` says what it is made from, in the words of `rackgate.metrics.inputs`. `layer` is where its
    failure lives; None if neither it nor its inputs tell. A `vendor` means that only cards of that vendor are
    asked.
    """

    name: str
    unit: str
    function: MeasureFunction
    owner: str = ""
    statistics: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    needs_load: bool = False
    inputs: tuple[str, ...] = ()
    layer: Layer | None = None
    vendor: str = ""

    @property
    def needs(self) -> tuple[str, ...]:
        """Its inputs, with the samples of its load first; empty if it does not tell."""
        return ("samples", *self.inputs) if self.needs_load else self.inputs

    @property
    def definition(self) -> str:
        """The first paragraph of the function's docstring, on one line."""
        text = inspect.getdoc(self.function) or ""
        return " ".join(text.split("\n\n")[0].split())


def measure(metrics: Mapping[str, Metric], slo: Slo, entity: str, observation: Observation) -> Measurement:
    """Return the row's metric for an entity, or why it has no value."""
    if slo.metric not in metrics:
        return missing(
            slo.metric, entity, slo.unit, Reason.NOT_CONFIGURED, f"no metric '{slo.metric}' is registered"
        )
    no_cards = observation.target.no_cards
    if no_cards is not None and slo.scope is Scope.CARD and entity in _nodes(observation):
        detail = f"no accelerator was found on this machine: {no_cards.why}"
        hint = " ".join(no_cards.next_steps)
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, detail, hint=hint)
    return metrics[slo.metric].function(observation, slo, entity)


def _nodes(observation: Observation) -> frozenset[str]:
    return frozenset(node.name for node in observation.target.nodes)
