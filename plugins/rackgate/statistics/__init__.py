"""Percentiles, bounds, rates and series: pure functions on arrays, each with its formula."""

from __future__ import annotations

from rackgate.statistics.failures import with_failures
from rackgate.statistics.looks import MOST_LOOKS, decided, look_confidence
from rackgate.statistics.percentiles import nearest_rank, order_ranks, percentile_bounds, samples_needed
from rackgate.statistics.proportions import mtbf_lower_bound_h, proportion_bounds
from rackgate.statistics.ratios import Balance, balance, drift, scaling_efficiency, throughput_per_s
from rackgate.statistics.series import (
    THROTTLE_MASK,
    SeriesValue,
    energy_from_counter_j,
    last_fifth_mean,
    throttle_time_s,
    time_weighted_mean,
)

__all__ = [
    "MOST_LOOKS",
    "THROTTLE_MASK",
    "Balance",
    "SeriesValue",
    "balance",
    "decided",
    "drift",
    "energy_from_counter_j",
    "last_fifth_mean",
    "look_confidence",
    "mtbf_lower_bound_h",
    "nearest_rank",
    "order_ranks",
    "percentile_bounds",
    "proportion_bounds",
    "samples_needed",
    "scaling_efficiency",
    "throttle_time_s",
    "throughput_per_s",
    "time_weighted_mean",
    "with_failures",
]
