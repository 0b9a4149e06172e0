"""Latency with its failures: a failed request is infinitely late, never left out silently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rackgate.statistics.percentiles import nearest_rank
from rackgate.statistics.proportions import proportion

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["LatencySummary", "summarise_latency", "with_failures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """Latency over ok requests beside the judged one, and beside both the error rate.

    `p50`, `p95`, `p99`, `minimum` and `maximum` are over ok requests alone, None if there is none;
    `judged_*` count each failed request as +infinity, None only if nothing was attempted. All in the
    unit of the latencies.
    """

    attempted: int
    failed: int
    error_rate: float | None
    minimum: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    maximum: float | None
    judged_p50: float | None
    judged_p95: float | None
    judged_p99: float | None


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


def summarise_latency(latencies: npt.ArrayLike, failed_count: int) -> LatencySummary:
    """Return percentiles over ok requests, the judged ones with failures, and failed / attempted."""
    judged = with_failures(latencies, failed_count)
    measured = judged[: len(judged) - failed_count]
    return LatencySummary(
        attempted=len(judged),
        failed=failed_count,
        error_rate=proportion(failed_count, len(judged)),
        minimum=nearest_rank(measured, 0.0),
        p50=nearest_rank(measured, 0.50),
        p95=nearest_rank(measured, 0.95),
        p99=nearest_rank(measured, 0.99),
        maximum=nearest_rank(measured, 1.0),
        judged_p50=nearest_rank(judged, 0.50),
        judged_p95=nearest_rank(judged, 0.95),
        judged_p99=nearest_rank(judged, 0.99),
    )
