"""The verdict on one check: a row and a measurement in, a judgement out."""

from __future__ import annotations

import math

from rackgate.nouns.measurement import Bounds, Measurement, Reason
from rackgate.nouns.slo import Check, Op, Severity, Slo
from rackgate.nouns.verdict import Judgement, Verdict
from rackgate.statistics.looks import decide_by_bounds
from rackgate.statistics.percentiles import samples_needed


def judge(check: Check, measurement: Measurement) -> Judgement:
    """Return the verdict on one check.

    No value, too few samples, or a bound between the confidence bounds of a percentile is UNKNOWN. A
    percentile PASSes by its upper confidence bound and FAILs by its lower one (for `<=`). A row of
    severity `warn` that does not hold is WARN.
    """
    slo = check.slo
    if check.undecidable:
        return Judgement(verdict=Verdict.UNKNOWN, reason=Reason.NOT_CONFIGURED, detail=check.undecidable)
    value = measurement.value
    if value is None:
        return Judgement(verdict=Verdict.UNKNOWN, reason=measurement.reason, detail=measurement.detail)
    margin = _margin(slo, value)
    if measurement.count < slo.min_count:
        detail = f"{measurement.count} samples, the row asks for {slo.min_count}"
        return Judgement(
            verdict=Verdict.UNKNOWN, reason=Reason.TOO_FEW, detail=detail, margin=margin, open=True
        )
    holds = _holds(slo, value, measurement.bounds)
    if holds is None:
        return Judgement(
            verdict=Verdict.UNKNOWN,
            reason=Reason.TOO_FEW,
            detail=_left_open(slo, measurement),
            margin=margin,
            open=True,
        )
    if holds:
        return Judgement(verdict=Verdict.PASS, margin=margin)
    broken = Verdict.WARN if slo.severity is Severity.WARN else Verdict.FAIL
    return Judgement(verdict=broken, detail=measurement.detail, margin=margin)


def _holds(slo: Slo, value: float, bounds: Bounds | None) -> bool | None:
    """Return whether the row holds: by the bounds where the statistic has any, else by the value."""
    if slo.quantile is None or bounds is None or slo.op is Op.EQUAL:
        return slo.op.holds(value, slo.bound)
    return decide_by_bounds(bounds, slo.bound, slo.op)


def _left_open(slo: Slo, measurement: Measurement) -> str:
    quantile, bounds, count = slo.quantile, measurement.bounds, measurement.count
    if quantile is None or bounds is None:
        return f"{count} samples leave it open"
    share = quantile if slo.op is Op.AT_MOST else 1 - quantile
    needed = samples_needed(share, bounds.confidence)
    if count < needed:
        return f"{count} samples cannot show a {slo.statistic.upper()}: at least {needed} are needed"
    lower, upper = ("nothing" if side is None else f"{side:g}" for side in (bounds.lower, bounds.upper))
    return (
        f"{count} samples leave it open: {slo.bound:g} lies between the confidence bounds {lower} and {upper}"
    )


def _margin(slo: Slo, value: float) -> float | None:
    if slo.bound == 0 or slo.op is Op.EQUAL or not math.isfinite(value):
        return None
    distance = slo.bound - value if slo.op is Op.AT_MOST else value - slo.bound
    return distance / abs(slo.bound)
