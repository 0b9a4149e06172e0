"""The instrument measures its own error, and a spoilt instrument is found out."""

import numpy as np
import pytest

from rackgate.loadgen.instrument.reference import measure_instrument
from rackgate.nouns.load import Limits, Load
from rackgate.nouns.measurement import Reason

LOAD = Load(
    name="l", prompt_tokens=20, output_tokens=8, concurrency=4, looks=(32,), warmup_requests=1,
    limits=Limits(first_token_s=5, stall_s=5, total_s=20),
)  # fmt: skip


def measure(tmp_path, instrument_fault=""):
    return measure_instrument(
        LOAD, samples_path=tmp_path / "x.parquet", instrument_fault=instrument_fault, gap_ms=5.0
    )


def test_the_error_is_known_for_each_request(tmp_path):
    error = measure(tmp_path)
    assert (error.reason, error.count, len(error.errors_ms), len(error.lag_ms)) == (None, 32, 32, 32)
    assert (error.errors_ms > 0).all()
    assert np.median(error.errors_ms) < 20


def test_a_slow_instrument_shows_in_its_error(tmp_path):
    assert np.percentile(measure(tmp_path, "slow").errors_ms, 90) > 10


@pytest.mark.parametrize(
    ("instrument_fault", "reason", "words"),
    [
        ("blank", Reason.BLANK, "32 of 32 requests have no stamp"),
        ("die", Reason.DIED, "load worker died"),
        ("reference_die", Reason.DIED, "reference server"),
    ],
)
def test_what_cannot_be_measured_has_a_reason_and_no_number(tmp_path, instrument_fault, reason, words):
    error = measure(tmp_path, instrument_fault)
    assert (reason, 0, 0) == (error.reason, error.count, len(error.errors_ms))
    assert words in error.detail
