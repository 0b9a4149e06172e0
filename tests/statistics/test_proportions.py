from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackgate.statistics.proportions import mtbf_lower_bound_h, proportion_bounds


def brute_tail(hits: int, trials: int, share: float) -> float:
    return math.fsum(math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(hits + 1))


@settings(max_examples=80)
@given(st.integers(1, 120).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.6, 0.999))
def test_bounds_solve_the_binomial_tails(pair, confidence):
    hits, trials = pair
    bounds = proportion_bounds(hits, trials, confidence)
    assert bounds.lower <= hits / trials <= bounds.upper
    if hits < trials:
        assert 1 - confidence == pytest.approx(brute_tail(hits, trials, bounds.upper), rel=1e-6)
    if hits > 0:
        assert confidence == pytest.approx(brute_tail(hits - 1, trials, bounds.lower), rel=1e-6)


def test_known_values_of_the_edges():
    assert 1 - 0.05 ** (1 / 10) == pytest.approx(proportion_bounds(0, 10).upper)
    assert 0.05 ** (1 / 10) == pytest.approx(proportion_bounds(10, 10).lower)
    assert (0.0, 1.0) == (proportion_bounds(0, 10).lower, proportion_bounds(10, 10).upper)


def test_one_failure_in_a_million_has_a_small_upper_bound():
    assert 4.7439e-6 == pytest.approx(proportion_bounds(1, 1_000_000).upper, rel=1e-4)


def test_a_share_of_nothing_is_none():
    assert (None, None) == (proportion_bounds(0, 0).lower, proportion_bounds(0, 0).upper)


@pytest.mark.parametrize(("hits", "trials"), [(-1, 3), (4, 3)])
def test_counts_that_contradict_each_other_are_refused(hits, trials):
    with pytest.raises(ValueError, match="is not a share"):
        proportion_bounds(hits, trials)


def test_zero_failures_prove_a_third_of_the_card_hours_and_no_more():
    assert 24.0 == mtbf_lower_bound_h(72.0)
    assert mtbf_lower_bound_h(0.0) is None


@pytest.mark.parametrize(("failures", "expected"), [(1, 4.743865), (2, 6.295794), (10, 16.962219)])
def test_failures_lower_the_bound_by_the_poisson_limit(failures, expected):
    assert expected == pytest.approx(1000.0 / mtbf_lower_bound_h(1000.0, failures), rel=1e-6)
