"""How many worker processes a load needs: as few as can carry it, and no more than there are cores."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

from rackgate.nouns.load import Load

_CHUNK_S = 25e-6
_REQUEST_S = 150e-6
"""CPU time of one streamed chunk and of one request, as docs/performance.md measured them, rounded up."""

_BUSY_SHARE = 0.5
"""A worker that is busier than this stamps arrivals late."""

_TOKENS_PER_S = 50.0
"""What a stream is taken to give, where no rate says how many there are."""


def workers_for(load: Load, endpoints: int, *, cores: Sequence[int] = (), each: int | None = None) -> int:
    """Return how many workers offer a load: what it asks for, else what its rate takes.

    One core is left to the system, and each worker has at least one request in flight per endpoint. On load
    machines with so many `cores` there are `each` on every one, or at least one and as many as the rate
    takes; each worker still has a request. Raises `ValueError` if more are asked for than requests may be in
    flight.
    """
    if load.workers is not None:
        if not 1 <= load.workers <= load.concurrency:
            text = f"workers: {load.workers} is not between 1 and the concurrency of {load.concurrency}"
            raise ValueError(f"load {load.name!r}: {text}")
        return load.workers
    busy_s = _busy_s(load, endpoints)
    machines = cores or (len(os.sched_getaffinity(0)),)
    most = sum(max(1, count - 1) for count in machines)
    needed = max(len(machines), min(math.ceil(busy_s / _BUSY_SHARE), most))
    return max(1, min(each * len(machines) if each else needed, load.concurrency))


def _busy_s(load: Load, endpoints: int) -> float:
    """Return the CPU seconds that a load takes in each second."""
    rates = [load.rate_per_s or 0.0, *(max(phase.rate_per_s, phase.last_rate_per_s) for phase in load.phases)]
    if load.open and max(rates):
        requests = max(rates) * endpoints
        return requests * (_REQUEST_S + load.output_tokens * _CHUNK_S)
    chunks = load.concurrency * endpoints * _TOKENS_PER_S if not load.open else 0.0
    return chunks * _CHUNK_S + chunks / load.output_tokens * _REQUEST_S
