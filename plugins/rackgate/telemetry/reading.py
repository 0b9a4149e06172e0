"""One value of one signal at one moment, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackgate.measurement import Reason

__all__ = ["FIELDS", "REQUIRED", "Reading"]

FIELDS = {
    "temperature_c": "°C",
    "memory_temperature_c": "°C",
    "power_w": "W",
    "energy_j": "J",
    "sm_clock_mhz": "MHz",
    "clock_event_reasons": "bits",
    "utilisation_pct": "%",
    "memory_used_mib": "MiB",
}
"""Our name of each signal and its unit, whatever the source calls it."""

REQUIRED = ("temperature_c", "power_w", "sm_clock_mhz", "clock_event_reasons")
"""What an acceptance verdict cannot do without."""


@dataclass(frozen=True, slots=True)
class Reading:
    """`t_ns` is CLOCK_MONOTONIC of this machine; exactly one of `value` and `reason` is None."""

    t_ns: int
    node: str
    entity: str
    field: str
    value: float | None
    reason: Reason | None = None
    detail: str = ""

    @property
    def unit(self) -> str:
        """The field's unit."""
        return FIELDS[self.field]
