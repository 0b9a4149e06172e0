"""The instrument against a server that stamps its own writes, with margins for a busy machine.

Measured when idle the P99 is below 0.3 ms at 100 streams; a clock path that is broken is wrong by tens
of milliseconds, and that is what these margins still tell apart.
"""

import numpy as np

from rackgate.load import Arrival, Limits, Load
from rackgate.loadgen import measure_instrument

LIMITS = Limits(first_token_s=20, stall_s=20, total_s=60)


def test_a_hundred_streams_are_timed_to_a_few_milliseconds(tmp_path):
    load = Load(
        name="l", prompt_tokens=16, output_tokens=20, concurrency=100, looks=(400,), warmup_requests=100,
        limits=LIMITS,
    )  # fmt: skip
    error = measure_instrument(load, samples_path=tmp_path / "x.parquet")
    assert (None, 400) == (error.reason, error.count)
    assert 0 < np.median(error.errors_ms) < 3.0
    assert np.quantile(np.abs(error.errors_ms), 0.9, method="inverted_cdf") < 15.0


def test_an_open_load_is_sent_on_time(tmp_path):
    load = Load(
        name="l", prompt_tokens=16, output_tokens=4, arrival=Arrival.CONSTANT, rate_per_s=200.0,
        duration_s=2.0, concurrency=400, warmup_requests=8, limits=LIMITS,
    )  # fmt: skip
    error = measure_instrument(load, samples_path=tmp_path / "x.parquet")
    assert (None, 400) == (error.reason, error.count)
    assert (error.lag_ms >= 0).all()
    assert np.median(error.lag_ms) < 3.0
