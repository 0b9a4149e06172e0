from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.statistics.series import (
    THROTTLE_MASK,
    energy_from_counter_j,
    last_fifth_mean,
    throttle_time_s,
    time_weighted_mean,
)

SECOND = 1_000_000_000


def seconds(*moments: float) -> np.ndarray:
    return np.array([round(moment * SECOND) for moment in moments])


def test_a_mean_is_weighted_by_time_and_not_by_samples():
    moments = seconds(0, 8, 8.5, 9, 9.5, 10)
    values = [100.0, 100.0, 100.0, 100.0, 100.0, 100.0]
    values[1:] = [100.0, 200.0, 200.0, 200.0, 200.0]
    mean = time_weighted_mean(moments, values, start_ns=0, end_ns=10 * SECOND, gap_limit_s=10)
    assert (8 * 100 + 0.5 * 150 + 1.5 * 200) / 10 == pytest.approx(mean.value)
    assert 1.0 == mean.coverage


def test_samples_outside_the_window_give_its_edges():
    moments = seconds(-1, 1, 3)
    mean = time_weighted_mean(moments, [0.0, 20.0, 40.0], start_ns=0, end_ns=2 * SECOND, gap_limit_s=5)
    assert 20.0 == pytest.approx(mean.value)
    assert 2.0 == mean.covered_s


def test_a_gap_beyond_the_limit_is_not_covered_and_withdraws_the_value():
    moments = seconds(0, 1, 2, 8, 9, 10)
    values = [1.0, 1.0, 1.0, 5.0, 5.0, 5.0]
    mean = time_weighted_mean(moments, values, start_ns=0, end_ns=10 * SECOND, gap_limit_s=2)
    assert (None, 3.0, 4.0, 10.0) == (mean.value, mean.partial, mean.covered_s, mean.window_s)
    assert 0.4 == mean.coverage


def test_missing_samples_are_gaps_and_never_numbers():
    mean = time_weighted_mean(
        seconds(0, 1, 2, 3), [1.0, math.nan, math.nan, 1.0], start_ns=0, end_ns=3 * SECOND, gap_limit_s=2
    )
    assert (None, None, 0.0) == (mean.value, mean.partial, mean.covered_s)
    nothing = time_weighted_mean([], [], start_ns=0, end_ns=SECOND, gap_limit_s=2)
    assert (None, None, 0.0) == (nothing.value, nothing.partial, nothing.coverage)
    no_window = time_weighted_mean(seconds(0, 1), [1, 1], start_ns=5, end_ns=5, gap_limit_s=2)
    assert (None, 0.0) == (no_window.value, no_window.coverage)


@given(
    st.lists(st.tuples(st.integers(0, 10**10), st.floats(-50, 150)), min_size=2, max_size=50),
    st.integers(0, 10**9),
    st.integers(9 * 10**9, 10**10),
)
def test_a_mean_lies_between_the_samples_whatever_their_order(points, start_ns, end_ns):
    moments, values = zip(*points, strict=True)
    mean = time_weighted_mean(moments, values, start_ns=start_ns, end_ns=end_ns, gap_limit_s=100)
    backwards = time_weighted_mean(
        moments[::-1], values[::-1], start_ns=start_ns, end_ns=end_ns, gap_limit_s=100
    )
    assert mean.covered_s == backwards.covered_s <= mean.window_s
    if mean.partial is not None:
        assert min(values) - 1e-6 <= mean.partial <= max(values) + 1e-6


def test_the_steady_value_comes_from_the_last_fifth():
    moments = np.arange(0, 101) * SECOND
    values = np.where(np.arange(0, 101) < 80, 40.0, 70.0)
    steady = last_fifth_mean(moments, values, start_ns=0, end_ns=100 * SECOND, gap_limit_s=2)
    assert (70.0, 20.0) == (steady.value, steady.window_s)


def test_energy_is_what_the_counter_gained_between_the_edges_of_the_window():
    moments = np.arange(-1, 12) * SECOND
    counter = np.arange(13) * 300.0 + 5e6
    window = {"start_ns": SECOND // 2, "end_ns": 10 * SECOND, "gap_limit_s": 2}
    assert 2850.0 == pytest.approx(energy_from_counter_j(moments, counter, **window))


def test_a_counter_bridges_a_gap_but_not_a_reset_and_not_a_missing_edge():
    window = {"start_ns": 0, "end_ns": 10 * SECOND, "gap_limit_s": 2}
    assert 90.0 == energy_from_counter_j(seconds(0, 10), [10.0, 100.0], **window)
    assert energy_from_counter_j(seconds(0, 5, 10), [10.0, 2.0, 100.0], **window) is None
    assert energy_from_counter_j(seconds(1, 10), [10.0, 100.0], **window) is None
    assert energy_from_counter_j(seconds(-2, 1, 10), [5.0, 10.0, 100.0], **window) is None
    assert energy_from_counter_j([], [], **window) is None


def test_throttle_time_counts_fault_bits_and_not_the_benign_ones():
    moments = seconds(0, 1, 2, 3, 4, 5)
    masks = [0x1, 0x4, 0x48, 0x8 | 0x4, 0x10, 0x0]
    found = throttle_time_s(moments, masks, start_ns=0, end_ns=5 * SECOND, gap_limit_s=2)
    assert 2.0 == found.value
    assert 0xE8 == THROTTLE_MASK


def test_throttle_time_is_unknown_over_a_gap_but_what_was_seen_is_kept():
    found = throttle_time_s(
        seconds(0, 1, 2, 9, 10), [0, 8, math.nan, 0, 0], start_ns=0, end_ns=10 * SECOND, gap_limit_s=2
    )
    assert (None, 0.0, 2.0) == (found.value, found.partial, found.covered_s)
    seen = throttle_time_s(
        seconds(0, 1, 2, 9, 10), [0, 8, 0, 0, 0], start_ns=0, end_ns=10 * SECOND, gap_limit_s=2
    )
    assert (None, 1.0) == (seen.value, seen.partial)


def test_a_sample_before_the_window_holds_into_it():
    found = throttle_time_s(seconds(-1, 1, 2), [8, 0, 0], start_ns=0, end_ns=2 * SECOND, gap_limit_s=3)
    assert 1.0 == found.value


def test_moments_and_values_of_different_number_are_refused():
    with pytest.raises(ValueError, match="do not belong"):
        time_weighted_mean([1, 2], [1.0], start_ns=0, end_ns=1, gap_limit_s=1)
