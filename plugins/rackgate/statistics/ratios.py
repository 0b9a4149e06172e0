"""Rates and ratios over a run: throughput, scaling, balance, drift."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """How evenly work was spread: both are ratios, 1 and 0 when it was even."""

    max_over_mean: float
    coefficient_of_variation: float


def throughput_per_s(
    done_ns: npt.ArrayLike, amounts: npt.ArrayLike | None = None, *, start_ns: int, end_ns: int
) -> float | None:
    """Return what was finished in the window (start, end] / its length, per second.

    The sum of `amounts` (output tokens, say) of the requests done in the window, or their number if no
    amounts are given. 0.0 if nothing was done; None for a window without length. Raises ValueError for
    a NaN amount of a request inside the window.
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

    `single` holds the throughput of each card involved, alone and under the same load per card. None if
    there is no card or the cards did nothing alone.
    """
    alone = float(np.asarray(single, dtype=np.float64).sum())
    return combined / alone if alone > 0 and math.isfinite(combined) and math.isfinite(alone) else None


def balance(amounts: npt.ArrayLike) -> Balance | None:
    """Return max / mean and standard deviation / mean of requests or tokens per card.

    `amounts` has an entry for every card, also for one that got nothing. The deviation is that of the
    whole population. None without a card, or if no card got anything.
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

    A value belongs to the tenth in which its moment lies. `statistic` is the mean unless told otherwise
    (`np.sum` over tokens gives the drift of throughput). None if either tenth is empty, or if the ratio
    does not exist.
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
