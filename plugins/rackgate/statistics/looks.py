"""The rule of at most three looks: PASS, FAIL, go on, and UNKNOWN at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rackgate.slo import Op
from rackgate.statistics.percentiles import nearest_rank, percentile_bounds, samples_needed
from rackgate.statistics.proportions import proportion, proportion_bounds
from rackgate.verdict import Verdict

if TYPE_CHECKING:
    import numpy.typing as npt

    from rackgate.measurement import Bounds

__all__ = ["MOST_LOOKS", "Decision", "decide", "decide_proportion", "look_confidence"]

MOST_LOOKS = 3
"""Looks at one growing sample; their sizes are fixed beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one look says. `verdict` is None while a later look may still decide.

    `value` is the observed percentile or share (None of nothing), `bounds` the one-sided bounds that
    decided, and `detail` says why nothing was decided, else it is empty.
    """

    verdict: Verdict | None
    value: float | None
    count: int
    bounds: Bounds
    detail: str = ""


def look_confidence(looks: int, alpha: float = 0.05) -> float:
    """Return the confidence of each bound: 1 - alpha for a single look, else 1 - alpha / 3.

    By Bonferroni the chance of a false PASS over all looks stays at or below alpha, and so does that
    of a false FAIL.
    """
    if not 1 <= looks <= MOST_LOOKS:
        raise ValueError(f"1 to {MOST_LOOKS} looks are allowed, not {looks}")
    return 1.0 - (alpha if looks == 1 else alpha / MOST_LOOKS)


def decide(
    values: npt.ArrayLike,
    quantile: float,
    bound: float,
    op: Op,
    *,
    look: int,
    looks: int,
    alpha: float = 0.05,
) -> Decision:
    """Judge a percentile at look `look` (from 0) of `looks`, over all values seen so far.

    For `<=`: PASS if the upper confidence bound is at or below `bound`, FAIL if the lower one is above
    it. For `>=`: PASS if the lower bound is at or above `bound`, FAIL if the upper one is below it.
    Otherwise None, and at the last look UNKNOWN. Raises ValueError for NaN and for `==`.
    """
    sample = np.asarray(values, dtype=np.float64).ravel()
    confidence = look_confidence(looks, alpha)
    needed_share = quantile if Op(op) is Op.AT_MOST else 1.0 - quantile
    bounds = percentile_bounds(sample, quantile, confidence)
    return _decision(
        value=nearest_rank(sample, quantile),
        count=len(sample),
        bounds=bounds,
        bound=bound,
        op=Op(op),
        last=_is_last(look, looks),
        needed=samples_needed(needed_share, confidence),
    )


def decide_proportion(
    hits: int, trials: int, bound: float, op: Op, *, look: int, looks: int, alpha: float = 0.05
) -> Decision:
    """Judge the share hits / trials (an error rate, say) by the same rule, on exact binomial bounds."""
    confidence = look_confidence(looks, alpha)
    return _decision(
        value=proportion(hits, trials),
        count=trials,
        bounds=proportion_bounds(hits, trials, confidence),
        bound=bound,
        op=Op(op),
        last=_is_last(look, looks),
        needed=1,
    )


def _is_last(look: int, looks: int) -> bool:
    if not 0 <= look < looks:
        raise ValueError(f"look {look} is not one of {looks}, counted from 0")
    return look == looks - 1


def _decision(
    *, value: float | None, count: int, bounds: Bounds, bound: float, op: Op, last: bool, needed: int
) -> Decision:
    verdict = _side(bounds, bound, op)
    if verdict is not None:
        return Decision(verdict=verdict, value=value, count=count, bounds=bounds)
    if count < needed:
        detail = f"{count} samples cannot show {op} {bound:g}: at least {needed} are needed"
    else:
        detail = (
            f"{count} samples leave it open: the bound {bound:g} lies between the confidence bounds "
            f"{_text(bounds.lower)} and {_text(bounds.upper)}"
        )
    return Decision(
        verdict=Verdict.UNKNOWN if last else None, value=value, count=count, bounds=bounds, detail=detail
    )


def _side(bounds: Bounds, bound: float, op: Op) -> Verdict | None:
    if op is Op.EQUAL:
        raise ValueError("confidence bounds decide <= and >=; equality has none")
    if op is Op.AT_MOST:
        holds = bounds.upper is not None and bounds.upper <= bound
        broken = bounds.lower is not None and bounds.lower > bound
    else:
        holds = bounds.lower is not None and bounds.lower >= bound
        broken = bounds.upper is not None and bounds.upper < bound
    if holds:
        return Verdict.PASS
    return Verdict.FAIL if broken else None


def _text(value: float | None) -> str:
    return "unresolved" if value is None else f"{value:g}"
