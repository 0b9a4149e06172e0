"""Latency with its failures: a failed request is infinitely late, never left out silently."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


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
