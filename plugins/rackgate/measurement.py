"""One measured value with its unit, sample count and bounds, or the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

__all__ = ["Bounds", "Measurement", "Reason", "missing"]


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
class Measurement:
    """A value of one metric for one entity, or the reason why there is none.

    `value` may be infinite (a percentile reached by failed requests), never NaN. A value and a reason
    exclude each other. `count` is the number of samples behind the value. `hint` says what to try where the
    measuring itself found out, such as which layer of a service failed. `beside` lists what else was seen
    at that time: no proof of a cause.
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
    beside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.value is not None and math.isnan(self.value):
            raise ValueError(f"{self.metric} @ {self.entity}: NaN is not a value")
        if (self.value is None) == (self.reason is None):
            raise ValueError(f"{self.metric} @ {self.entity}: exactly one of value and reason is needed")

    def without_value(self, reason: Reason, detail: str) -> Measurement:
        """Return the same measurement with its value withdrawn."""
        return replace(self, value=None, bounds=None, reason=reason, detail=detail)


def missing(
    metric: str, entity: str, unit: str, reason: Reason, detail: str, *, hint: str = ""
) -> Measurement:
    """Return a measurement without a value."""
    return Measurement(
        metric=metric, entity=entity, value=None, unit=unit, reason=reason, detail=detail, hint=hint
    )
