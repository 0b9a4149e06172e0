from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import accumulate, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackgate.statistics.percentiles import nearest_rank, order_ranks, percentile_bounds, samples_needed

CASES = Path(__file__).parent.parent / "cases"

finite = st.floats(allow_nan=False, width=32)
percents = st.integers(1, 99)


def exact_order_ranks(count: int, percent: int, confidence: int) -> tuple[int | None, int | None]:
    """Return (lower, upper) by integer arithmetic: tails are counted in units of 100 ** -count."""
    weights = [math.comb(count, k) * percent**k * (100 - percent) ** (count - k) for k in range(count)]
    tails = [100 * tail for tail in accumulate(weights)]
    unit = 100**count
    upper = next((k for k, tail in enumerate(tails, 1) if tail >= confidence * unit), None)
    lower = max((k for k, tail in enumerate(tails, 1) if tail <= (100 - confidence) * unit), default=None)
    return lower, upper


@given(st.lists(finite, min_size=1, max_size=300), percents)
def test_nearest_rank_is_the_definition(values, percent):
    share = Fraction(percent, 100)
    ordered = sorted(values)
    expected = next(x for k, x in enumerate(ordered, 1) if Fraction(k, len(ordered)) >= share)
    assert expected == nearest_rank(values, percent / 100)


@given(st.lists(finite, min_size=1, max_size=300), st.sampled_from([0.25, 0.5, 0.75, 0.875, 1.0]))
def test_nearest_rank_agrees_with_numpy_inverted_cdf(values, quantile):
    expected = np.quantile(np.array(values), quantile, method="inverted_cdf")
    assert float(expected) == nearest_rank(values, quantile)


@given(st.lists(finite, min_size=1, max_size=60), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_nearest_rank_is_observed_and_grows_with_the_quantile(values, one, other):
    low, high = sorted((one, other))
    assert nearest_rank(values, low) in values
    assert nearest_rank(values, low) <= nearest_rank(values, high)


def test_a_share_that_rounds_up_in_floats_takes_no_higher_rank():
    assert 7.0 == nearest_rank(range(1, 101), 0.07)


def test_p99_of_three_samples_is_observed_and_unresolvable():
    case = json.loads((CASES / "expected.json").read_text())["MET-10"]["expected"]
    values = json.loads((CASES / "inputs" / "MET-10.json").read_text())
    assert case["p99_nearest_rank"] == nearest_rank(values, 0.99)
    assert nearest_rank(values, 0.99) not in case["must_not_be"]["p99"]
    assert case["n"] == len(values)
    assert case["resolvable"] == (percentile_bounds(values, 0.99).upper is not None)


def test_the_percentile_of_nothing_is_none_and_unbounded():
    assert nearest_rank([], 0.99) is None
    bounds = percentile_bounds([], 0.99)
    assert (None, None) == (bounds.lower, bounds.upper)


def test_infinity_is_a_value_and_nan_is_none():
    assert math.inf == nearest_rank([1.0, math.inf], 0.99)
    assert 1.0 == nearest_rank([1.0, math.inf], 0.5)
    with pytest.raises(ValueError, match="NaN is not a value"):
        nearest_rank([1.0, math.nan, math.inf], 0.5)
    with pytest.raises(ValueError, match="NaN is not a value"):
        percentile_bounds([math.nan], 0.5)


@pytest.mark.parametrize("quantile", [-0.1, 1.1, math.nan])
def test_a_quantile_outside_zero_to_one_is_refused(quantile):
    with pytest.raises(ValueError, match="quantile"):
        nearest_rank([1.0], quantile)


@pytest.mark.parametrize("count", range(1, 31))
def test_order_ranks_of_small_counts_are_those_of_exact_arithmetic(count):
    for percent, confidence in product(range(1, 100), (50, 75, 80, 90, 95, 99)):
        expected = exact_order_ranks(count, percent, confidence)
        assert expected == order_ranks(count, percent / 100, confidence / 100), (percent, confidence)


@settings(max_examples=60)
@given(st.integers(1, 300), percents, percents)
def test_order_ranks_are_those_of_exact_arithmetic(count, percent, confidence):
    expected = exact_order_ranks(count, percent, confidence)
    assert expected == order_ranks(count, percent / 100, confidence / 100)


@pytest.mark.parametrize("count", [999, 1001, 100_001])
def test_the_median_of_an_odd_count_is_a_tie_at_any_size(count):
    middle = (count + 1) // 2
    assert (middle, middle) == order_ranks(count, 0.5, 0.5)


@given(percents, percents)
def test_samples_needed_are_those_of_exact_arithmetic(percent, confidence):
    missed, level = Fraction(100 - confidence, 100), Fraction(percent, 100)
    needed = samples_needed(percent / 100, confidence / 100)
    assert level**needed <= missed
    assert needed == 1 or level ** (needed - 1) > missed


def test_a_tie_at_one_sample_bounds_from_below():
    assert (1, None) == order_ranks(1, 0.95, 0.95)
    assert 2 == samples_needed(0.5, 0.75)


@given(st.integers(1, 5000), st.floats(0.01, 0.999), st.floats(0.5, 0.999))
def test_bounds_enclose_the_observed_percentile(count, quantile, confidence):
    values = np.arange(1.0, count + 1.0)
    bounds = percentile_bounds(values, quantile, confidence)
    value = nearest_rank(values, quantile)
    assert bounds.lower is None or bounds.lower <= value
    assert bounds.upper is None or value <= bounds.upper


@pytest.mark.parametrize(
    ("expected", "quantile", "confidence"),
    [(299, 0.99, 0.95), (408, 0.99, 1 - 0.05 / 3), (59, 0.95, 0.95), (5, 0.5, 0.95), (459, 0.99, 0.99)],
)
def test_samples_needed_is_the_least_number_that_resolves(expected, quantile, confidence):
    assert expected == samples_needed(quantile, confidence)
    assert order_ranks(expected, quantile, confidence)[1] == expected
    assert order_ranks(expected - 1, quantile, confidence)[1] is None


def test_ranks_of_ten_million_samples_lie_close_to_the_percentile():
    lower, upper = order_ranks(10_000_000, 0.99, 0.95)
    deviation = math.sqrt(10_000_000 * 0.99 * 0.01)
    assert 1.645 * deviation == pytest.approx(9_900_000 - lower, rel=0.02)
    assert 1.645 * deviation == pytest.approx(upper - 9_900_000, rel=0.02)


@pytest.mark.parametrize(("quantile", "count"), [(0.5, 40), (0.95, 200), (0.99, 700)])
def test_each_bound_covers_at_least_as_often_as_it_claims(quantile, count):
    runs = 4000
    samples = np.sort(np.random.default_rng(7).random((runs, count)), axis=1)
    lower, upper = order_ranks(count, quantile, 0.95)
    slack = 3 * math.sqrt(0.05 * 0.95 / runs)
    assert np.mean(samples[:, upper - 1] >= quantile) >= 0.95 - slack
    assert np.mean(samples[:, lower - 1] <= quantile) >= 0.95 - slack
