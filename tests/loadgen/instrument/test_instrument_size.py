"""The load generator is measured at the size of what it offers, and accepted by the tightest bound."""

import os
from dataclasses import replace

import pytest

from rackgate.loadgen.sizing import (
    REFERENCE_LOAD,
    accepted_error_ms,
    concurrent_streams,
    max_streams,
    scaled_reference,
)
from rackgate.nouns.load import Arrival, Load, Phase

CLOSED = Load(name="c", prompt_tokens=8, output_tokens=100, concurrency=8)
OPEN = replace(CLOSED, arrival=Arrival.POISSON, rate_per_s=10.0, concurrency=64)


@pytest.mark.parametrize(
    ("load", "endpoints", "expected"),
    [
        (CLOSED, 4, 32),
        (OPEN, 1, 20),  # 10/s x (0.047 s + 100 x 0.02 s)
        (OPEN, 3, 60),
        (replace(OPEN, rate_per_s=100.0), 1, 64),
        (
            replace(OPEN, rate_per_s=None, phases=(Phase(duration_s=1, rate_per_s=1, to_rate_per_s=10),)),
            1,
            20,
        ),
        (replace(OPEN, rate_per_s=None, arrival=Arrival.TRACE, arrivals_s=(0.0,)), 2, 128),
    ],
)
def test_the_streams_of_a_load_are_told_from_its_shape(load, endpoints, expected):
    assert expected == concurrent_streams(load, endpoints)


def test_the_reference_load_has_as_many_streams_and_is_bounded():
    assert REFERENCE_LOAD == scaled_reference(REFERENCE_LOAD, 1)
    assert 60 == pytest.approx(concurrent_streams(scaled_reference(REFERENCE_LOAD, 60), 1), abs=1)
    bound = min(256, 64 * len(os.sched_getaffinity(0)))
    assert bound == max_streams()
    assert bound == pytest.approx(concurrent_streams(scaled_reference(REFERENCE_LOAD, 10_000), 1), abs=1)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [([], 10.0), ([450.0, 500.0], 9.0), ([20.0], 1.0), ([9000.0], 10.0), ([100.0], 2.0)],
)
def test_two_percent_of_the_tightest_bound_are_accepted_and_at_least_a_millisecond(bounds, expected):
    assert expected == accepted_error_ms(bounds)
