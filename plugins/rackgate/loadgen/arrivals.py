"""When requests start: schedules of open loads, fixed before the first request is sent."""

from __future__ import annotations

from itertools import accumulate
from math import sqrt
from random import Random
from typing import TYPE_CHECKING

from rackgate.load import Arrival

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rackgate.load import Load, Phase

__all__ = ["schedule_ns"]


def schedule_ns(
    load: Load,
    *,
    requests: int,
    endpoint: int,
    endpoints: int,
    seed: str,
    trace_s: Sequence[float] = (),
) -> list[int]:
    """Return when each request to one endpoint starts, in ns after the start of the load, ascending.

    `constant` spaces requests by 1 / rate and shifts the endpoints against each other, so that they are
    not hit in the same instant. `poisson` places exactly `requests` arrivals in requests / rate seconds
    as a Poisson process does that is known to have had that many; `gamma` does the same with gaps of the
    load's burstiness. With phases the rate changes in time and the process with it. `trace` takes
    `trace_s`, else `load.arrivals_s`. The same seed gives the same schedule.
    Raises `ValueError` for a load that has no rate.
    """
    if load.arrival is Arrival.TRACE:
        moments = list(trace_s or load.arrivals_s)[:requests]
        first = moments[0] if trace_s and moments else 0.0
        return [round((moment - first) / load.trace_speed * 1e9) for moment in moments]
    if not load.phases and (not load.rate_per_s or load.rate_per_s <= 0):
        raise ValueError(f"load {load.name!r}: an open load needs a rate above 0")
    counts = _counts(load, requests, endpoint, endpoints, Random(f"arrivals|{seed}|{endpoint}"))
    if load.phases:
        return _over_phases(load.phases, counts)
    gap_ns = 1e9 / (load.rate_per_s or 1.0)
    return [round(count * gap_ns) for count in counts]


def _counts(load: Load, requests: int, endpoint: int, endpoints: int, random: Random) -> list[float]:
    """Return for each arrival how many were due on average before it, ascending, below `requests`."""
    if load.arrival is Arrival.POISSON:
        return sorted(random.random() * requests for _ in range(requests))
    if load.arrival is Arrival.GAMMA:
        # One gap more than arrivals, scaled to the whole: at burstiness 1 these are `poisson`'s in law.
        sums = list(accumulate(random.gammavariate(load.burstiness, 1.0) for _ in range(requests + 1)))
        return [before / sums[-1] * requests for before in sums[:-1]]
    return [index + endpoint / endpoints for index in range(requests)]


def _over_phases(phases: Sequence[Phase], counts: Sequence[float]) -> list[int]:
    """Return when the rates of the phases have offered each count, in ns; what is left over comes last."""
    moments: list[int] = []
    began_s, before, rest = 0.0, 0.0, list(counts)
    place = 0
    for phase in phases:
        after = before + phase.arrivals
        slope = (phase.last_rate_per_s - phase.rate_per_s) / phase.duration_s
        while place < len(rest) and rest[place] < after:
            due = rest[place] - before
            root = sqrt(max(0.0, phase.rate_per_s**2 + 2 * slope * due))
            seconds = 2 * due / (phase.rate_per_s + root) if due else 0.0
            moments.append(round((began_s + min(seconds, phase.duration_s)) * 1e9))
            place += 1
        began_s += phase.duration_s
        before = after
    return moments + [round(began_s * 1e9)] * (len(rest) - place)
