"""Repeated looks at one growing sample: the confidence of each look, and the decision by its bounds."""

from __future__ import annotations

from rackgate.nouns.measurement import Bounds
from rackgate.nouns.slo import Op

MOST_LOOKS = 3
"""Largest number of looks; the sample size of each is fixed beforehand."""


def look_confidence(looks: int, alpha: float = 0.05) -> float:
    """Return the confidence of each bound: 1 - alpha for a single look, else 1 - alpha / 3.

    Bonferroni correction: the probability of a false PASS over all looks is at most alpha, and so is that
    of a false FAIL. Raises ValueError for more than `MOST_LOOKS` looks.
    """
    if not 1 <= looks <= MOST_LOOKS:
        raise ValueError(f"1 to {MOST_LOOKS} looks are allowed, not {looks}")
    return 1.0 - (alpha if looks == 1 else alpha / MOST_LOOKS)


def decide_by_bounds(bounds: Bounds, limit: float, op: Op) -> bool | None:
    """Return whether the value within the bounds meets `limit`; None if the bounds do not decide it.

    For `<=`: True if the upper bound is at or below the limit, False if the lower bound is above it. For
    `>=`: True if the lower bound is at or above the limit, False if the upper bound is below it. Raises
    ValueError for `==`.
    """
    if op is Op.EQUAL:
        raise ValueError("confidence bounds decide <= and >=; equality has none")
    near, far = (bounds.upper, bounds.lower) if op is Op.AT_MOST else (bounds.lower, bounds.upper)
    if near is not None and op.holds(near, limit):
        return True
    return False if far is not None and not op.holds(far, limit) else None
