"""Tails of the binomial distribution: to about ten digits for any number of trials, or in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

_DEVIATIONS = 12.0
_SLACK = 60.0


def binomial_window(trials: int, probability: float) -> tuple[int, npt.NDArray[np.float64]]:
    """Return the first count of a window around the mean, and the probability of each count in it.

    P(k) = C(n, k) p^k (1 - p)^(n - k). What lies outside the window is far below 1e-20 in total, so the
    window is scaled to a sum of 1. `probability` lies strictly between 0 and 1.
    """
    mean = trials * probability
    reach = _DEVIATIONS * math.sqrt(mean * (1.0 - probability)) + _SLACK
    first = max(0, int(mean - reach))
    last = min(trials, int(mean + reach) + 1)
    counts = np.arange(first + 1, last + 1, dtype=np.float64)
    odds = math.log(probability) - math.log1p(-probability)
    steps = np.log((trials - counts + 1.0) / counts) + odds
    logs = np.concatenate((np.zeros(1), np.cumsum(steps)))
    weights = np.exp(logs - logs.max())
    return first, weights / weights.sum()


def binomial_cdf(count: int, trials: int, probability: float) -> float:
    """Return P(B <= count) for B ~ Binomial(trials, probability)."""
    if count < 0:
        return 0.0
    if count >= trials or probability <= 0.0:
        return 1.0
    if probability >= 1.0:
        return 0.0
    first, weights = binomial_window(trials, probability)
    return float(min(1.0, weights[: max(0, count - first + 1)].sum()))


def exact_binomial_cdf(count: int, trials: int, probability: Fraction) -> Fraction:
    """Return P(B <= count) for B ~ Binomial(trials, probability), exactly; slow above a thousand trials."""
    hit, whole = probability.as_integer_ratio()
    miss = whole - hit
    weight = total = miss**trials
    for hits in range(1, count + 1):
        weight = weight * (trials - hits + 1) * hit // (hits * miss)
        total += weight
    return Fraction(total, whole**trials)
