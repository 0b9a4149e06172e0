"""Arrival schedules of open loads; they depend on the load and its seed only."""

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
    """Return the scheduled start of each request to one endpoint, in ns after the load's start, ascending.

    `constant` spaces requests by 1 / rate and shifts the endpoints against each other. `poisson` places
    exactly `requests` arrivals in requests / rate seconds, like a Poisson process conditioned on that number;
    `gamma` does the same with gaps of the load's burstiness. With phases the rate changes over time. `trace`
    uses `trace_s`, else `load.arrivals_s`. The same seed gives the same schedule. The schedule is lazy: days
    of it cost neither time nor memory before the first request. Raises `ValueError` for a load that has no
    rate.
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
    """Yield the expected number of arrivals before each arrival, ascending, below `requests`."""
    if load.arrival is Arrival.CONSTANT:
        yield from (index + endpoint / endpoints for index in range(requests))
        return
    gamma = load.arrival is Arrival.GAMMA
    left = float(requests)
    for gaps in range(requests, 0, -1):  # gaps after this arrival; the last gap has no arrival
        # The share of one gap among `gaps` of a known sum: at burstiness 1 both distributions are equal.
        if gamma:
            share = random.betavariate(load.burstiness, load.burstiness * gaps)
        else:
            share = -expm1(log(1.0 - random.random()) / gaps)
        left -= left * share
        yield max(0.0, requests - left)


def _over_phases(phases: Sequence[Phase], counts: Iterable[float]) -> Iterator[int]:
    """Yield the moment in ns at which the phases' rates reach each count; the rest comes at the end."""
    rest = iter(phases)
    phase: Phase | None = next(rest)
    began_s, before = 0.0, 0.0
    for count in counts:
        while phase is not None and count >= before + phase.arrivals:
            began_s += phase.duration_s
            before += phase.arrivals
            phase = next(rest, None)
        yield round((began_s + (_seconds_into(phase, count - before) if phase is not None else 0.0)) * 1e9)


def _seconds_into(phase: Phase, due: float) -> float:
    """Return after how many seconds of a phase `due` arrivals are due."""
    slope = (phase.last_rate_per_s - phase.rate_per_s) / phase.duration_s
    root = sqrt(max(0.0, phase.rate_per_s**2 + 2 * slope * due))
    seconds = 2 * due / (phase.rate_per_s + root) if due else 0.0
    return min(seconds, phase.duration_s)
