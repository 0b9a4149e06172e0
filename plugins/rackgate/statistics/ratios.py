"""Rates and ratios over a run: throughput, scaling, balance, drift."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """How evenly work was spread. Evenly spread work has the ratios 1 and 0."""

    max_over_mean: float
    coefficient_of_variation: float


def throughput_per_s(
    done_ns: npt.ArrayLike, amounts: npt.ArrayLike | None = None, *, start_ns: int, end_ns: int
) -> float | None:
    """Return the work finished in the window (start, end] / the length of the window, per second.

    The work is the sum of `amounts` (such as output tokens) over the requests done in the window, or
    their number without `amounts`. None for a window of no length. Raises ValueError if the amount of a
    request inside the window is NaN.
    """
    if end_ns <= start_ns:
        return None
    moments = np.asarray(done_ns).ravel()
    inside = (moments > start_ns) & (moments <= end_ns)
    done = np.ones(len(moments)) if amounts is None else np.asarray(amounts, dtype=np.float64).ravel()
    total = float(done[inside].sum())
    if math.isnan(total):
        raise ValueError("a finished request without an amount cannot be part of a throughput")
    return total / ((end_ns - start_ns) / 1e9)


def scaling_efficiency(combined: float, single: npt.ArrayLike) -> float | None:
    """Return throughput(n cards) / (n x mean throughput of those n cards alone), a ratio.

    `single` holds the throughput of each card alone, under the same load per card. None without a card, or
    if the cards alone had no throughput.
    """
    alone = float(np.asarray(single, dtype=np.float64).sum())
    return combined / alone if alone > 0 and math.isfinite(combined) and math.isfinite(alone) else None


def balance(amounts: npt.ArrayLike) -> Balance | None:
    """Return max / mean and standard deviation / mean of requests or tokens per card.

    `amounts` has an entry for every card, 0 for a card without work. The standard deviation is that of the
    population. None without a card, or if all amounts are 0.
    """
    shares = np.asarray(amounts, dtype=np.float64).ravel()
    mean = float(shares.mean()) if len(shares) else 0.0
    if not (mean > 0 and math.isfinite(mean)):
        return None
    return Balance(
        max_over_mean=float(shares.max()) / mean, coefficient_of_variation=float(shares.std()) / mean
    )


def _mean(values: npt.NDArray[np.float64]) -> float | None:
    return float(values.mean())


def drift(
    t_ns: npt.ArrayLike,
    values: npt.ArrayLike,
    *,
    start_ns: int,
    end_ns: int,
    statistic: Callable[[npt.NDArray[np.float64]], float | None] = _mean,
) -> float | None:
    """Return statistic(last tenth of the window) / statistic(first tenth), a ratio.

    A value belongs to the tenth in which its time lies. With `np.sum` as statistic, tokens give the drift
    of throughput. None if either tenth is empty, or if the ratio is not finite.
    """
    moments = np.asarray(t_ns).ravel()
    amounts = np.asarray(values, dtype=np.float64).ravel()
    tenth_ns = (end_ns - start_ns) / 10.0
    head = amounts[(moments >= start_ns) & (moments <= start_ns + tenth_ns)]
    tail = amounts[(moments >= end_ns - tenth_ns) & (moments <= end_ns)]
    if end_ns <= start_ns or not len(head) or not len(tail):
        return None
    first, last = statistic(head), statistic(tail)
    if first is None or last is None or not (math.isfinite(first) and math.isfinite(last)) or first == 0:
        return None
    return float(last) / float(first)
