"""How exact the load generator is with many streams, and how soon it begins; `load.py` prints it.

The capacity is what one of our workers and the reference server carry together when 1,000 streams are
paced faster than they can be; the error is then measured at half of that. Streams are brought up over some
seconds: those that begin in one instant would all have their first token in one.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING

import numpy as np

from rackgate.loadgen.instrument.reference import measure_instrument, reference_server
from rackgate.loadgen.instrument.reference_server import Script
from rackgate.loadgen.running import start_load
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Limits, Load

if TYPE_CHECKING:
    from rackgate.loadgen.instrument.reference import InstrumentError


GOAL_ERROR_MS = {100: 0.3, 1000: 1.0}
GOAL_STARTUP_S = 1.0
TOKENS = 40
TOO_FAST_MS = 4.0
UNEVEN_MS = tuple(30.0 + 0.37 * (37 * index % 101) for index in range(101))


def offered(streams: int, gap_ms: float, *, ramp_s: float) -> InstrumentError:
    """Offer so many streams at once to the reference server and return the errors of their first tokens."""
    load = Load(
        name="exact", prompt_tokens=16, output_tokens=TOKENS, concurrency=streams, looks=(3 * streams,),
        warmup_requests=0, ramp_s=ramp_s, limits=Limits(first_token_s=60, stall_s=60, total_s=120),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.parquet"
        error = measure_instrument(load, samples_path=path, ttft_ms=UNEVEN_MS, gap_ms=gap_ms)
    if error.reason is not None:
        raise RuntimeError(f"{streams} streams: {error.reason} {error.detail}")
    return error


def capacity_per_s(streams: int) -> float:
    """Return the chunks per second that worker and reference server carry together."""
    found = offered(streams, TOO_FAST_MS, ramp_s=1.0).offered
    if found is None:
        raise RuntimeError("no load was offered")
    return found.counters.started * TOKENS / ((found.end_ns - found.start_ns) / 1e9)


def exactness(rounds: int) -> dict[int, dict[str, float]]:
    """Return, by streams, the pace and P50 and P99 of |reported - true TTFT| in ms: medians of the rounds."""
    half = capacity_per_s(1000) / 2
    found = {}
    for streams, gap_ms in ((100, 20.0), (1000, 1000 * 1000 / half)):
        quantiles = []
        for _ in range(rounds):
            errors = np.abs(offered(streams, gap_ms, ramp_s=streams * gap_ms / 1e3 / 20).errors_ms)
            quantiles.append(np.percentile(errors, (50, 99), method="inverted_cdf"))
        low, high = np.median(np.array(quantiles), axis=0)
        found[streams] = {
            "gap_ms": gap_ms,
            "chunks_per_s": streams * 1000 / gap_ms,
            "p50": float(low),
            "p99": float(high),
        }
    return found


def startup_s(rounds: int) -> float:
    """Return the median time from asking for a load to its first request, in s."""
    load = Load(name="start", prompt_tokens=16, output_tokens=1, concurrency=1, looks=(1,), warmup_requests=0)
    times = []
    with reference_server(Script(ttft_ms=(0.0,))) as url, tempfile.TemporaryDirectory() as folder:
        endpoint = Endpoint(entity="reference", url=url, model="reference")
        for number in range(rounds):
            path = Path(folder) / str(number)
            began_ns = perf_counter_ns()
            with start_load(load, [endpoint], label="start", samples_path=path, seed=1) as running:
                samples = running.finish().samples
            if samples is None:
                raise RuntimeError("the load was not offered")
            times.append((float(samples.sent_ns[0]) - began_ns) / 1e9)
    return statistics.median(times)
