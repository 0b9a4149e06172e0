"""The rule of at most three looks: how sure each look must be, and what its bounds decide."""

from __future__ import annotations

from rackgate.nouns.measurement import Bounds
from rackgate.nouns.slo import Op

MOST_LOOKS = 3
"""Looks at one growing sample; their sizes are fixed beforehand."""


def look_confidence(looks: int, alpha: float = 0.05) -> float:
    """Return the confidence of each bound: 1 - alpha for a single look, else 1 - alpha / 3.

    By Bonferroni the chance of a false PASS over all looks stays at or below alpha, and so does that
    of a false FAIL.
    """
    if not 1 <= looks <= MOST_LOOKS:
        raise ValueError(f"1 to {MOST_LOOKS} looks are allowed, not {looks}")
    return 1.0 - (alpha if looks == 1 else alpha / MOST_LOOKS)


def decided(bounds: Bounds, limit: float, op: Op) -> bool | None:
    """Return whether the value behind the bounds keeps to `limit`; None if the bounds leave it open.

    For `<=`: True if the upper bound is at or below the limit, False if the lower one is above it. For
    `>=`: True if the lower bound is at or above it, False if the upper one is below. Raises ValueError
    for `==`.
    """
    if op is Op.EQUAL:
        raise ValueError("confidence bounds decide <= and >=; equality has none")
    near, far = (bounds.upper, bounds.lower) if op is Op.AT_MOST else (bounds.lower, bounds.upper)
    if near is not None and op.holds(near, limit):
        return True
    return False if far is not None and not op.holds(far, limit) else None
