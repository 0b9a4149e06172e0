"""The size of a load: its worker processes, its concurrent streams, and the reference load to match."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rackgate.nouns.load import Arrival, Load

REFERENCE_LOAD = Load(
    name="reference", prompt_tokens=16, output_tokens=16, arrival=Arrival.POISSON, rate_per_s=120.0,
    duration_s=3.0, concurrency=512, warmup_requests=8,
)  # fmt: skip
"""Measures the load generator where the acceptance file has no reference load."""

_MAX_ERROR_MS = 10.0
_MIN_ERROR_MS = 1.0
_ERROR_SHARE = 0.02
"""The accepted error of the load generator as a share of the tightest TTFT bound."""

_FIRST_TOKEN_S = 0.047
_TOKEN_S = 0.02
"""Average times of the reference server's script, also assumed for other servers' streams."""

_STREAMS_PER_CORE = 64
_MAX_STREAMS = 256
"""The most streams that the reference server, one process, can stamp on time."""

_CHUNK_CPU_S = 25e-6
_REQUEST_CPU_S = 150e-6
"""CPU time of one streamed chunk and of one request: measured in docs/performance.md, rounded up."""

_BUSY_SHARE = 0.5
"""A worker that is busier than this stamps arrivals late."""

_TOKENS_PER_S = 50.0
"""Assumed tokens per second of a stream in a closed load."""


def accepted_error_ms(ttft_bounds_ms: Iterable[float]) -> float:
    """Return the accepted P99 error of the load generator: 2 % of the tightest TTFT bound, 1 to 10 ms.

    It is 10 ms without a bound.
    """
    tightest = min(ttft_bounds_ms, default=_MAX_ERROR_MS / _ERROR_SHARE)
    return min(_MAX_ERROR_MS, max(_MIN_ERROR_MS, _ERROR_SHARE * tightest))


def concurrent_streams(load: Load, endpoints: int) -> int:
    """Return the approximate number of answers that a load has in flight at once."""
    if not load.open:
        return load.concurrency * endpoints
    by_rate = _peak_rate_per_s(load) * _stream_s(load)
    return max(1, min(load.concurrency, round(by_rate) if by_rate else load.concurrency)) * endpoints


def max_streams() -> int:
    """Return the most streams with which the load generator is measured on this machine."""
    return min(_MAX_STREAMS, _STREAMS_PER_CORE * len(os.sched_getaffinity(0)))


def scaled_reference(reference: Load, streams: int) -> Load:
    """Return the reference load with at least `streams` at once, but at most `max_streams`."""
    wanted = min(streams, max_streams())
    rate_per_s = max(reference.rate_per_s or 0.0, wanted / _stream_s(reference))
    return replace(reference, rate_per_s=round(rate_per_s, 1))


def worker_count(
    load: Load, endpoints: int, *, cores: Sequence[int] = (), per_machine: int | None = None
) -> int:
    """Return how many worker processes offer a load: the load's own number, else what its rate needs.

    One core is left to the system, and each worker has at least one request in flight per endpoint. `cores`
    are those of each load machine: every machine has `per_machine` workers, or at least one. Raises
    `ValueError` if the load asks for more workers than its concurrency.
    """
    if load.workers is not None:
        if not 1 <= load.workers <= load.concurrency:
            text = f"workers: {load.workers} is not between 1 and the concurrency of {load.concurrency}"
            raise ValueError(f"load {load.name!r}: {text}")
        return load.workers
    machines = cores or (len(os.sched_getaffinity(0)),)
    most = sum(max(1, count - 1) for count in machines)
    needed = max(len(machines), min(math.ceil(_cpu_share(load, endpoints) / _BUSY_SHARE), most))
    return max(1, min(per_machine * len(machines) if per_machine else needed, load.concurrency))


def _cpu_share(load: Load, endpoints: int) -> float:
    """Return the CPU seconds that a load takes in each second."""
    rate_per_s = _peak_rate_per_s(load)
    if load.open and rate_per_s:
        return rate_per_s * endpoints * (_REQUEST_CPU_S + load.output_tokens * _CHUNK_CPU_S)
    chunks = load.concurrency * endpoints * _TOKENS_PER_S if not load.open else 0.0
    return chunks * _CHUNK_CPU_S + chunks / load.output_tokens * _REQUEST_CPU_S


def _peak_rate_per_s(load: Load) -> float:
    phases = (rate for phase in load.phases for rate in (phase.rate_per_s, phase.last_rate_per_s))
    return max(load.rate_per_s or 0.0, *phases, 0.0)


def _stream_s(load: Load) -> float:
    return _FIRST_TOKEN_S + _TOKEN_S * load.output_tokens
