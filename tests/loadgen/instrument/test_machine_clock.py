"""Another machine's moments become ours, and its clock is not trusted further than it is known."""

import time
from time import perf_counter_ns

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.loadgen.machine_clock import ClockReading, MachineClock, measure_clock_offset, on_local_clock
from rackgate.nouns.load import Origin
from rackgate.nouns.sample import Outcome, Sample

SECOND = 1_000_000_000
SAMPLE = Sample(
    request_id="r", engine="e", load="l", label="x", outcome=Outcome.OK, scheduled_ns=10 * SECOND,
    sent_ns=10 * SECOND + 1, first_byte_ns=10 * SECOND + 50, first_token_ns=10 * SECOND + 100,
    last_token_ns=12 * SECOND, done_ns=12 * SECOND + 7, token_ns=(10 * SECOND + 100, 12 * SECOND),
    output_tokens=2,
)  # fmt: skip


def clock_of(*offsets_ms, every_s=60.0, known_to_ms=0.2):
    readings = tuple(
        ClockReading(
            at_ns=round(number * every_s * 1e9),
            offset_ns=round(offset_ms * 1e6),
            uncertainty_ns=round(known_to_ms * 1e6),
        )
        for number, offset_ms in enumerate(offsets_ms)
    )
    return MachineClock(machine="lm1", readings=readings)


@given(
    ahead_s=st.integers(-10_000, 10_000),
    ppm=st.floats(-300, 300),
    at_s=st.floats(0, 600),
)
def test_a_clock_that_runs_fast_or_slow_is_followed(ahead_s, ppm, at_s):
    def there_ns(here_ns):
        return ahead_s * SECOND + round(here_ns * (1 + ppm / 1e6))

    readings = tuple(
        ClockReading(at_ns=at, offset_ns=there_ns(at) - at, uncertainty_ns=200_000)
        for at in (0, 60 * SECOND, 300 * SECOND, 600 * SECOND)
    )
    clock = MachineClock(machine="lm1", readings=readings)
    here_ns = round(at_s * 1e9)
    assert abs(clock.here_ns(there_ns(here_ns)) - here_ns) <= 3
    assert "" == clock.problem(limit_ms=10.0)


def test_a_sample_keeps_its_durations_on_another_clock():
    there = clock_of(5_000.0, 5_030.0)
    here = on_local_clock(SAMPLE, there)
    assert SAMPLE.scheduled_ns - here.scheduled_ns == there.offset_ns(SAMPLE.scheduled_ns)
    for duration in (Sample.ttft_ms, Sample.e2e_ms):
        assert duration(SAMPLE, Origin.SCHEDULED) == duration(here, Origin.SCHEDULED)
    assert (SAMPLE.tpot_ms, SAMPLE.chunk_gaps_ms) == (here.tpot_ms, here.chunk_gaps_ms)
    assert SAMPLE.schedule_lag_ms == here.schedule_lag_ms
    assert here.first_answer_ns is None


@pytest.mark.parametrize(
    ("clock", "said"),
    [
        (clock_of(0.0, 5.0, 11.0), ""),
        (clock_of(0.0), ""),
        (clock_of(0.0, 0.0, known_to_ms=12.0), "known to 12.0 ms only (accepted 10 ms)"),
        (clock_of(0.0, 0.1, 900.0), "went 899.9 ms wrong within 60.0 s"),
        (clock_of(0.0, -31.0), "went 31.0 ms wrong within 60.0 s"),
    ],
    ids=["steady", "read once", "uncertain", "set", "too slow"],
)
def test_a_clock_that_cannot_be_trusted_says_why(clock, said):
    assert clock.problem(limit_ms=10.0).endswith(said)
    assert bool(said) == bool(clock.problem(limit_ms=10.0))


def test_the_shortest_round_trip_counts_and_holds_the_truth():
    waits = iter((0.02, 0.0, 0.01))

    def ask():
        time.sleep(next(waits))
        return perf_counter_ns() + 7 * SECOND

    reading = measure_clock_offset(ask, 3)
    assert reading.uncertainty_ns < 5_000_000
    assert abs(reading.offset_ns - 7 * SECOND) <= reading.uncertainty_ns
