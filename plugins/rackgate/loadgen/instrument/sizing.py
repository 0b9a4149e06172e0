"""What is asked of the load generator itself: how late it may be, and at what load that is measured."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from rackgate.nouns.load import Arrival, Load

REFERENCE = Load(
    name="reference", prompt_tokens=16, output_tokens=16, arrival=Arrival.POISSON, rate_per_s=120.0,
    duration_s=3.0, concurrency=512, warmup_requests=8,
)  # fmt: skip
"""The load by which one call of the load generator is measured, where none is agreed."""

_ACCEPTED_MS = 10.0
_LEAST_MS = 1.0
_SHARE = 0.02
_FIRST_TOKEN_S = 0.047
_TOKEN_S = 0.02
"""What the reference server's script takes, on average; a stream is taken to be as fast elsewhere."""

_STREAMS_PER_CORE = 64
_MOST_STREAMS = 256
"""What the reference server, one process, can still stamp on time."""


def accepted_ms(ttft_bounds_ms: Iterable[float]) -> float:
    """Return how late the load generator may be (P99): 2 % of the tightest bound of TTFT, at least 1 ms.

    Never more than 10 ms, which is also what holds without a bound.
    """
    tightest = min(ttft_bounds_ms, default=_ACCEPTED_MS / _SHARE)
    return min(_ACCEPTED_MS, max(_LEAST_MS, _SHARE * tightest))


def streams_of(load: Load, endpoints: int) -> int:
    """Return about how many answers a load has on their way at once."""
    if not load.open:
        return load.concurrency * endpoints
    rates = [load.rate_per_s or 0.0, *(max(one.rate_per_s, one.last_rate_per_s) for one in load.phases)]
    by_rate = max(rates) * _stream_s(load)
    return max(1, min(load.concurrency, round(by_rate) if by_rate else load.concurrency)) * endpoints


def most_streams() -> int:
    """Return the most streams that the instrument is measured with on this machine."""
    return min(_MOST_STREAMS, _STREAMS_PER_CORE * len(os.sched_getaffinity(0)))


def sized(reference: Load, streams: int) -> Load:
    """Return the reference load with at least so many streams at once, each a chunk every 20 ms.

    More than `most_streams` are not tried.
    """
    wanted = min(streams, most_streams())
    rate_per_s = max(reference.rate_per_s or 0.0, wanted / _stream_s(reference))
    return replace(reference, rate_per_s=round(rate_per_s, 1))


def _stream_s(load: Load) -> float:
    return _FIRST_TOKEN_S + _TOKEN_S * load.output_tokens
