"""What stands beside an unmet latency row: what else happened while its slow requests ran."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rackgate.diagnosis.together import happenings_of, seen_at_the_same_time
from rackgate.metrics.requests import chosen_samples

if TYPE_CHECKING:
    from rackgate.loadgen.table import SampleTable
    from rackgate.measurement import Measurement
    from rackgate.observation import Observation
    from rackgate.slo import Check, Slo

__all__ = ["with_what_else"]

_SHOWN = 3
_MOST_WINDOWS = 2000


def with_what_else(check: Check, measurement: Measurement, observation: Observation) -> Measurement:
    """Return the measurement with what was seen in the seconds of its slow requests, the longest first.

    It is no proof of a cause. Nothing is added without telemetry or without a request over the bound.
    """
    table = chosen_samples(observation, check.slo, check.entity).table
    if table is None or observation.telemetry is None:
        return measurement
    windows = _slow(table, check.slo)
    if not windows:
        return measurement
    happenings = happenings_of(observation.telemetry, observation.faults)
    seen = seen_at_the_same_time(windows, happenings, limit=_SHOWN)
    return replace(measurement, beside=tuple(one.text for one in seen))


def _slow(table: SampleTable, slo: Slo) -> list[tuple[int, int]]:
    """Return from when to when each request ran that was over the bound."""
    if slo.metric not in table.columns:
        return []
    values = np.asarray(table.column(slo.metric), dtype=float)
    start = np.asarray(table.column("scheduled_ns"), dtype=float)
    end = np.asarray(table.column("done_ns"), dtype=float)
    chosen = np.flatnonzero((values > slo.bound) & ~np.isnan(start) & ~np.isnan(end))
    return [(int(start[row]), int(end[row])) for row in chosen[:_MOST_WINDOWS]]
