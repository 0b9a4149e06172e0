"""When requests start: schedules of open loads, which depend on nothing but the load and its seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import expm1, log, sqrt
from random import Random

from rackgate.nouns.load import Arrival, Load, Phase


def schedule_ns(
    load: Load,
    *,
    requests: int,
    endpoint: int,
    endpoints: int,
    seed: str,
    trace_s: Sequence[float] = (),
) -> Iterator[int]:
    """Return when each request to one endpoint starts, in ns after the start of the load, ascending.

    `constant` spaces requests by 1 / rate and shifts the endpoints against each other, so that they are
    not hit in the same instant. `poisson` places exactly `requests` arrivals in requests / rate seconds
    as a Poisson process does that is known to have had that many; `gamma` does the same with gaps of the
    load's burstiness. With phases the rate changes in time and the process with it. `trace` takes
    `trace_s`, else `load.arrivals_s`. The same seed gives the same schedule. Each moment is made when it
    is asked for: a schedule of days costs no time and no memory before its first request.
    Raises `ValueError` for a load that has no rate.
    """
    if load.arrival is Arrival.TRACE:
        moments = trace_s or load.arrivals_s
        first = trace_s[0] if trace_s else 0.0
        count = min(requests, len(moments))
        return (round((moments[place] - first) / load.trace_speed * 1e9) for place in range(count))
    if not load.phases and (not load.rate_per_s or load.rate_per_s <= 0):
        raise ValueError(f"load {load.name!r}: an open load needs a rate above 0")
    counts = _counts(load, requests, endpoint, endpoints, Random(f"arrivals|{seed}|{endpoint}"))
    if load.phases:
        return _over_phases(load.phases, counts)
    gap_ns = 1e9 / (load.rate_per_s or 1.0)
    return (round(count * gap_ns) for count in counts)


def _counts(load: Load, requests: int, endpoint: int, endpoints: int, random: Random) -> Iterator[float]:
    """Yield for each arrival how many were due on average before it, ascending, below `requests`."""
    if load.arrival is Arrival.CONSTANT:
        yield from (index + endpoint / endpoints for index in range(requests))
        return
    gamma = load.arrival is Arrival.GAMMA
    left = float(requests)
    for gaps in range(requests, 0, -1):  # that are still to come behind this one, the last one has no arrival
        # The share that one gap has of so many that make up a known whole: at burstiness 1 these are one law.
        if gamma:
            share = random.betavariate(load.burstiness, load.burstiness * gaps)
        else:
            share = -expm1(log(1.0 - random.random()) / gaps)
        left -= left * share
        yield max(0.0, requests - left)


def _over_phases(phases: Sequence[Phase], counts: Iterable[float]) -> Iterator[int]:
    """Yield when the rates of the phases have offered each count, in ns; what is left over comes last."""
    rest = iter(phases)
    phase: Phase | None = next(rest)
    began_s, before = 0.0, 0.0
    for count in counts:
        while phase is not None and count >= before + phase.arrivals:
            began_s += phase.duration_s
            before += phase.arrivals
            phase = next(rest, None)
        yield round((began_s + (_into(phase, count - before) if phase is not None else 0.0)) * 1e9)


def _into(phase: Phase, due: float) -> float:
    """Return how far into a phase, in seconds, so many arrivals are due."""
    slope = (phase.last_rate_per_s - phase.rate_per_s) / phase.duration_s
    root = sqrt(max(0.0, phase.rate_per_s**2 + 2 * slope * due))
    seconds = 2 * due / (phase.rate_per_s + root) if due else 0.0
    return min(seconds, phase.duration_s)
