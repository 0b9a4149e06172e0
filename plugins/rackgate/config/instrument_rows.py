"""The rows of the load generator itself follow the tightest agreed bound of a time to first token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rackgate.loadgen.instrument.sizing import accepted_ms
from rackgate.nouns.slo import Op, Slo

_ROWS = ("selfcheck.measurement_error_p99", "selfcheck.schedule_lag_p99")
_METRICS = ("ttft_ms", "survivor_ttft_ms")
_TAIL = ("p90", "p95", "p99", "p999", "max")
"""A lateness that one request in a hundred has moves no median."""


def tightened(slos: Sequence[Slo]) -> list[Slo]:
    """Return the rows, those of the load generator at most 2 % of the tightest bound of a tail of TTFT."""
    bounds = [
        row.bound
        for row in slos
        if row.metric in _METRICS and row.statistic in _TAIL and row.op is Op.AT_MOST
    ]
    limit_ms = accepted_ms(bounds)
    return [
        replace(row, bound=limit_ms, source=f"2 % of the tightest bound of a TTFT tail, {min(bounds):g} ms")
        if row.id in _ROWS and bounds and row.op is Op.AT_MOST and row.bound > limit_ms
        else row
        for row in slos
    ]
