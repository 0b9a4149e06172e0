"""A metric: its name, unit, definition and the function that computes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rackgate.measurement import Measurement, Reason, missing
from rackgate.observation import Observation
from rackgate.slo import Slo

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MeasureFunction", "Metric", "Register", "measure"]

MeasureFunction = Callable[[Observation, Slo, str], Measurement]
"""Computes a row's metric for one entity; never raises for what the rack did."""

Register = Callable[[str, str, MeasureFunction], None]
"""`register(name, unit, function)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A registered metric. Its definition is the function's docstring and stands beside each number."""

    name: str
    unit: str
    function: MeasureFunction
    owner: str = ""

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
    return metrics[slo.metric].function(observation, slo, entity)
