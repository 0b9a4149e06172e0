"""Histogram with logarithmic buckets and a stated relative error, for more values than fit into memory."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

_SMALLEST = 1e-6


class LogHistogram:
    """Counts values at or above 0 in buckets whose bounds grow by a constant factor.

    A quantile is off by at most `relative_error` of its value; the maximum is exact. Values below 1e-6
    count as 0.
    """

    def __init__(self, relative_error: float = 0.01) -> None:
        if not 0.0 < relative_error < 1.0:
            raise ValueError(f"a relative error lies strictly between 0 and 1, not at {relative_error}")
        self._ratio = (1.0 + relative_error) / (1.0 - relative_error)
        self._counts: dict[int, int] = {}
        self._zeros = 0
        self.count = 0
        self.total = 0.0
        self.max = -math.inf

    def add(self, values: npt.ArrayLike) -> None:
        """Count values. Raises ValueError if a value is negative, infinite or NaN."""
        given = np.asarray(values, dtype=np.float64).ravel()
        if not len(given):
            return
        if not (given >= 0.0).all() or np.isinf(given).any():
            raise ValueError("only finite values at or above 0 can be counted")
        above = given[given >= _SMALLEST]
        self._zeros += len(given) - len(above)
        buckets = np.ceil(np.log(above) / math.log(self._ratio)).astype(np.int64)
        for bucket, count in zip(*np.unique(buckets, return_counts=True), strict=True):
            self._counts[int(bucket)] = self._counts.get(int(bucket), 0) + int(count)
        self.count += len(given)
        self.total += float(given.sum())
        self.max = max(self.max, float(given.max()))

    def quantile(self, quantile: float) -> float | None:
        """Return the nearest-rank quantile; None if nothing was counted."""
        if not self.count:
            return None
        left = max(1, math.ceil(quantile * self.count - 1e-9)) - self._zeros
        if left <= 0:
            return 0.0
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 0:
                return min(2.0 * self._ratio**bucket / (self._ratio + 1.0), self.max)
        return self.max
