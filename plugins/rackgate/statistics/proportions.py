"""Confidence bounds of a share of attempts, and of the mean time between failures."""

from __future__ import annotations

import math
from collections.abc import Callable

from rackgate.nouns.measurement import Bounds
from rackgate.statistics.binomial import binomial_cdf

_HALVINGS = 100


def proportion_bounds(hits: int, trials: int, confidence: float = 0.95) -> Bounds:
    """Return Clopper-Pearson's one-sided bounds of a share, each holding with `confidence`.

    With B ~ Binomial(trials, p) and alpha = 1 - confidence: the upper bound solves
    P(B <= hits) = alpha, the lower bound P(B >= hits) = alpha. The lower bound is 0 without a hit, the
    upper bound 1 if all trials hit. Both are None without a trial.
    """
    _check_counts(hits, trials)
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence lies strictly between 0 and 1, not at {confidence}")
    if trials == 0:
        return Bounds(lower=None, upper=None, confidence=confidence)
    alpha = 1.0 - confidence
    lower, upper = 0.0, 1.0
    if hits < trials:
        upper = _bisect(lambda share: binomial_cdf(hits, trials, share) <= alpha)[1]
    if hits > 0:
        # P(B >= hits | p) = P(B' <= trials - hits | 1 - p), which avoids cancellation in the far tail.
        lower = _bisect(lambda share: binomial_cdf(trials - hits, trials, 1.0 - share) > alpha)[0]
    return Bounds(lower=lower, upper=upper, confidence=confidence)


def mtbf_lower_bound_h(card_hours: float, failures: int = 0, confidence: float = 0.95) -> float | None:
    """Return the lower bound of the mean time between failures, in card-hours, at `confidence`.

    card_hours / m, where m solves P(Poisson(m) <= failures) = 1 - confidence. Zero failures at 95 %
    give card_hours / 3 (the rule of three; the exact divisor is 2.9957). None for 0 card-hours.
    """
    if failures < 0 or not 0.0 < confidence < 1.0:
        raise ValueError("failures are not negative, and confidence lies strictly between 0 and 1")
    if not card_hours > 0:
        return None
    if failures == 0 and math.isclose(confidence, 0.95):
        return card_hours / 3.0
    most = 10.0 * (failures + 10.0) - 10.0 * math.log(1.0 - confidence)
    expected = _bisect(lambda share: _poisson_cdf(failures, share * most) <= 1.0 - confidence)[1] * most
    return card_hours / expected


def _bisect(beyond: Callable[[float], bool]) -> tuple[float, float]:
    """Return the largest share at which `beyond` is false and the smallest at which it is true."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return low, high


def _poisson_cdf(count: int, mean: float) -> float:
    if mean <= 0.0:
        return 1.0
    logs = [index * math.log(mean) - mean - math.lgamma(index + 1) for index in range(count + 1)]
    return math.fsum(math.exp(value) for value in logs)


def _check_counts(hits: int, trials: int) -> None:
    if not 0 <= hits <= trials:
        raise ValueError(f"{hits} of {trials} is not a share")
