"""Nearest-rank percentiles, their distribution-free confidence bounds, and latencies that count failures."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from rackgate.nouns.measurement import Bounds
from rackgate.statistics.binomial import binomial_window

_TIE = 1e-9
"""Tails closer than this to a confidence are equal to it: rounding must not decide a tie."""


def nearest_rank(values: npt.ArrayLike, quantile: float) -> float | None:
    """Return the smallest observed value with at least `quantile` of the values at or below it.

    x_(k) with the smallest k for which k / n >= quantile (numpy's `inverted_cdf`), in the values' unit.
    Infinity counts as a value. None for no values. Raises ValueError for NaN.
    """
    ordered = _ordered(values)
    return float(ordered[_rank(len(ordered), quantile) - 1]) if len(ordered) else None


def percentile_bounds(values: npt.ArrayLike, quantile: float, confidence: float = 0.95) -> Bounds:
    """Return one-sided bounds of the percentile, each holding with `confidence`, in the values' unit.

    The bounds are the order statistics x_(s) and x_(r) of `order_ranks`. A bound is None if there are too
    few values for it. Raises ValueError for NaN.
    """
    ordered = _ordered(values)
    lower, upper = order_ranks(len(ordered), quantile, confidence)
    return Bounds(
        lower=None if lower is None else float(ordered[lower - 1]),
        upper=None if upper is None else float(ordered[upper - 1]),
        confidence=confidence,
    )


@lru_cache(maxsize=256)
def order_ranks(count: int, quantile: float, confidence: float) -> tuple[int | None, int | None]:
    """Return the ranks (from 1) of the order statistics that bound the percentile from below and above.

    With B ~ Binomial(count, quantile): the upper rank is the smallest r <= count with
    P(B <= r - 1) >= confidence, the lower rank the largest s >= 1 with P(B <= s - 1) <= 1 - confidence.
    None where no such rank exists. Holds for every distribution, also with equal values. A tail that
    equals the confidence as a decimal number counts as equal.
    """
    _check_share(quantile, "quantile")
    _check_share(confidence, "confidence")
    if count == 0:
        return None, None
    first, weights = binomial_window(count, quantile)
    tails = np.minimum(np.cumsum(weights), 1.0)
    upper = first + int(np.searchsorted(tails, confidence - _TIE, side="left")) + 1
    lower = first + int(np.searchsorted(tails, 1.0 - confidence + _TIE, side="right"))
    return (lower if lower >= 1 else None), (upper if upper <= count else None)


def samples_needed(quantile: float, confidence: float = 0.95) -> int:
    """Return the least number of samples whose maximum bounds the percentile from above.

    The smallest n with quantile^n <= 1 - confidence: 299 for P99 at 95 %, 408 at 1 - 0.05 / 3.
    """
    _check_share(quantile, "quantile")
    _check_share(confidence, "confidence")
    return max(1, math.ceil(math.log(1.0 - confidence) / math.log(quantile) - _TIE))


def with_failures(latencies: npt.ArrayLike, failed_count: int) -> npt.NDArray[np.float64]:
    """Return the latencies of the ok requests, followed by one +infinity for each failed request.

    Raises ValueError for NaN (an ok request without a latency is a contradiction) or a negative count.
    """
    if failed_count < 0:
        raise ValueError(f"{failed_count} requests cannot have failed")
    measured = np.asarray(latencies, dtype=np.float64).ravel()
    if np.isnan(measured).any():
        raise ValueError("NaN is not a latency: a request without one has failed")
    return np.concatenate((measured, np.full(failed_count, np.inf)))


def _rank(count: int, quantile: float) -> int:
    if not 0.0 <= quantile <= 1.0:
        raise ValueError(f"a quantile lies between 0 and 1, not at {quantile}")
    rank = min(count, max(1, math.ceil(quantile * count)))
    # quantile * count rounds up at times (0.07 * 100 > 7), so compare the share k / n as in the definition.
    while rank > 1 and (rank - 1) / count >= quantile:
        rank -= 1
    return rank


def _ordered(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    ordered = np.asarray(values, dtype=np.float64).ravel()
    if not (ordered[:-1] <= ordered[1:]).all():  # also true with NaN
        ordered = np.sort(ordered)
    if len(ordered) and np.isnan(ordered[-1]):
        raise ValueError("NaN is not a value: leave out what was not measured, and count it")
    return ordered


def _check_share(share: float, name: str) -> None:
    if not 0.0 < share < 1.0:
        raise ValueError(f"{name} lies strictly between 0 and 1, not at {share}")
