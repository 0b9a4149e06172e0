from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.statistics.percentiles import nearest_rank
from rackgate.statistics.ratios import balance, drift, scaling_efficiency, throughput_per_s

SECOND = 1_000_000_000


def test_throughput_counts_what_was_done_inside_the_window_only():
    done = [0, 1, SECOND, 2 * SECOND, 2 * SECOND + 1]
    assert 1.5 == throughput_per_s(done, start_ns=0, end_ns=2 * SECOND)
    assert 45.0 == throughput_per_s(done, [1, 20, 30, 40, 50], start_ns=0, end_ns=2 * SECOND)


def test_adjoining_windows_count_each_request_once():
    done = np.arange(0, 10 * SECOND + 1, SECOND // 4)
    whole = throughput_per_s(done, start_ns=0, end_ns=10 * SECOND) * 10
    parts = [throughput_per_s(done, start_ns=s * SECOND, end_ns=(s + 1) * SECOND) for s in range(10)]
    assert whole == sum(parts)


def test_throughput_of_no_window_is_none_and_of_no_work_zero():
    assert throughput_per_s([5], start_ns=5, end_ns=5) is None
    assert 0.0 == throughput_per_s([], start_ns=0, end_ns=SECOND)
    with pytest.raises(ValueError, match="without an amount"):
        throughput_per_s([1], [math.nan], start_ns=0, end_ns=SECOND)


def test_scaling_efficiency_compares_with_the_mean_of_the_cards_involved():
    assert 0.9 == pytest.approx(scaling_efficiency(180.0, [90.0, 110.0]))
    assert scaling_efficiency(180.0, []) is None
    assert scaling_efficiency(180.0, [0.0, 0.0]) is None


def test_balance_counts_the_card_that_got_nothing():
    uneven = balance([30, 0])
    assert (2.0, 1.0) == (uneven.max_over_mean, uneven.coefficient_of_variation)
    even = balance([7, 7, 7])
    assert (1.0, 0.0) == (even.max_over_mean, even.coefficient_of_variation)
    assert balance([]) is None
    assert balance([0, 0]) is None


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=72).filter(any))
def test_balance_lies_between_one_and_the_number_of_cards(amounts):
    found = balance(amounts)
    assert 1.0 - 1e-9 <= found.max_over_mean <= len(amounts) * (1 + 1e-9)
    assert 0.0 <= found.coefficient_of_variation <= math.sqrt(len(amounts))


def test_drift_is_the_last_tenth_over_the_first():
    moments = np.arange(0, 1001)
    values = np.where(moments < 500, 10.0, 12.0)
    assert 1.2 == pytest.approx(drift(moments, values, start_ns=0, end_ns=1000))
    p99 = drift(moments, values, start_ns=0, end_ns=1000, statistic=lambda tenth: nearest_rank(tenth, 0.99))
    assert 1.2 == pytest.approx(p99)


def test_drift_without_both_tenths_or_without_a_ratio_is_none():
    assert drift([0, 50], [1.0, 1.0], start_ns=0, end_ns=100) is None
    assert drift([50, 100], [1.0, 1.0], start_ns=0, end_ns=100) is None
    assert drift([0, 100], [0.0, 1.0], start_ns=0, end_ns=100) is None
    assert drift([0, 100], [math.inf, 1.0], start_ns=0, end_ns=100) is None
    assert drift([0], [1.0], start_ns=0, end_ns=0) is None
