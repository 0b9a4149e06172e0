"""When requests start: schedules of open loads, fixed before the first request is sent."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from rackgate.load import Arrival

if TYPE_CHECKING:
    from rackgate.load import Load

__all__ = ["schedule_ns"]


def schedule_ns(load: Load, *, requests: int, endpoint: int, endpoints: int, seed: str) -> list[int]:
    """Return when each request to one endpoint starts, in ns after the start of the load, ascending.

    `constant` spaces requests by 1 / rate and shifts the endpoints against each other, so that they are
    not hit in the same instant. `poisson` places exactly `requests` arrivals in requests / rate seconds
    as a Poisson process does that is known to have had that many. The same seed gives the same schedule.
    Raises `ValueError` for a load that has no rate.
    """
    if not load.rate_per_s or load.rate_per_s <= 0:
        raise ValueError(f"load {load.name!r}: an open load needs a rate above 0")
    gap_ns = 1e9 / load.rate_per_s
    if load.arrival is Arrival.POISSON:
        random = Random(f"arrivals|{seed}|{endpoint}")
        return sorted(round(random.random() * gap_ns * requests) for _ in range(requests))
    shift_ns = gap_ns * endpoint / endpoints
    return [round(index * gap_ns + shift_ns) for index in range(requests)]
