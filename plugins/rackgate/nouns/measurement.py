"""One measured value with its unit, sample count and bounds, or the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum


class Layer(StrEnum):
    """Where a failure lives, the outermost first."""

    CLIENT = "client"
    NETWORK = "network"
    SERVICE = "service"
    MODEL = "model"
    CONTAINER = "container"
    DRIVER = "driver"
    HARDWARE = "hardware"

    @property
    def depth(self) -> int:
        """0 for the outermost."""
        return list(Layer).index(self)


class Reason(StrEnum):
    """Why a measurement has no value."""

    ABSENT = "absent"
    BLANK = "blank"
    UNSUPPORTED = "unsupported"
    NO_PERMISSION = "no_permission"
    TOOL_MISSING = "tool_missing"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    TOO_FEW = "too_few"
    STALE = "stale"
    GATED = "gated"
    EXCLUDED = "excluded"
    NOT_CONFIGURED = "not_configured"
    INSTRUMENT = "instrument"
    DIED = "died"

    @property
    def cure(self) -> str:
        """The next step towards a value, in a sentence."""
        return _CURES[self]


_CURES = {
    Reason.ABSENT: "Find out why the signal is not there: the card, its driver or the exporter.",
    Reason.BLANK: "The source answered without a value. Restart the exporter or the driver's host engine.",
    Reason.UNSUPPORTED: "The hardware does not offer this. Declare it in the target, with the reason.",
    Reason.NO_PERMISSION: "Run as a user who may read this, or declare a narrower vantage in the target.",
    Reason.TOOL_MISSING: "Install the tool named above on the node.",
    Reason.TIMEOUT: "The source did not answer in time. See whether the node is overloaded or hung.",
    Reason.UNREACHABLE: "Check the address in the target, the network, and that the service runs.",
    Reason.TOO_FEW: "Offer more requests: raise the load's looks or duration in the acceptance file.",
    Reason.STALE: "The source repeats an old value. Restart the exporter and compare its clock.",
    Reason.GATED: "Repair what gated this check first.",
    Reason.EXCLUDED: "The entity was left out on purpose. Run again without the exclusion.",
    Reason.NOT_CONFIGURED: "Add what is missing to the target or the acceptance file.",
    Reason.INSTRUMENT: "The load generator was the bottleneck. Use a quieter or a second load machine.",
    Reason.DIED: "See the log of the process that died, under evidence/logs/.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """One-sided confidence bounds of a value, in the value's unit.

    `lower` and `upper` each hold with `confidence`. `None` means that the samples cannot bound that
    side. Infinity means that failed requests reach into the percentile.
    """

    lower: float | None
    upper: float | None
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """A code or condition found while measuring, by the key that the table of signatures knows.

    `key` is `xid:79` (`xid:149:nonfatal` where the event says so), `sxid`, `clock:0x48`,
    `kernel:oom` or `condition:NAME`; `seen` says in words what was seen.
    """

    key: str
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A value of one metric for one entity, or the reason why there is none.

    `value` may be infinite (a percentile reached by failed requests), never NaN. A value and a reason
    exclude each other. `count` is the number of samples behind the value. `hint` says what to try where the
    measuring itself found out, such as which layer of a service failed. `symptoms` are codes and conditions
    behind the value. `beside` lists what else was seen at that time: no proof of a cause.
    """

    metric: str
    entity: str
    value: float | None
    unit: str
    count: int = 0
    bounds: Bounds | None = None
    reason: Reason | None = None
    detail: str = ""
    source: str = ""
    hint: str = ""
    symptoms: tuple[Symptom, ...] = ()
    beside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.value is not None and math.isnan(self.value):
            raise ValueError(f"{self.metric} @ {self.entity}: NaN is not a value")
        if (self.value is None) == (self.reason is None):
            raise ValueError(f"{self.metric} @ {self.entity}: exactly one of value and reason is needed")

    def without_value(self, reason: Reason, detail: str) -> Measurement:
        """Return the same measurement with its value withdrawn."""
        return replace(self, value=None, bounds=None, reason=reason, detail=detail)


ProbeResults = dict[tuple[str, str], Measurement]
"""What was measured directly, by (metric, entity)."""


OPEN_WARNING = "open warning: "
"""Prefix of a line of `beside` that names a warning under which the value was measured."""

_MOST_WARNINGS = 5


def tainted(measurement: Measurement, warnings: tuple[str, ...]) -> Measurement:
    """Return the measurement with the open warnings of these checks beside it."""
    if not warnings:
        return measurement
    lines = [f"{OPEN_WARNING}{check_id}" for check_id in warnings[:_MOST_WARNINGS]]
    if len(warnings) > _MOST_WARNINGS:
        lines.append(f"{OPEN_WARNING}and {len(warnings) - _MOST_WARNINGS} more")
    return replace(measurement, beside=(*measurement.beside, *lines))


def missing(
    metric: str, entity: str, unit: str, reason: Reason, detail: str, *, hint: str = ""
) -> Measurement:
    """Return a measurement without a value."""
    return Measurement(
        metric=metric, entity=entity, value=None, unit=unit, reason=reason, detail=detail, hint=hint
    )


def truth(metric: str, entity: str, good: bool, detail: str, hint: str = "") -> Measurement:  # noqa: FBT001
    """Return what a probe saw as 1 or 0."""
    return Measurement(
        metric=metric,
        entity=entity,
        value=float(good),
        unit="bool",
        count=1,
        detail=detail,
        source="probe",
        hint=hint,
    )
