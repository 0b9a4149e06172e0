from __future__ import annotations

import math

import numpy as np
import pytest

from rackgate.slo import Op
from rackgate.statistics import decide, decide_proportion, look_confidence, order_ranks
from rackgate.verdict import Verdict

LOOKS = (408, 1000, 2000)
RUNS = 4000


def rates_of_the_rule(true_share: float) -> tuple[float, float]:
    """Share of runs that PASS and that FAIL if `true_share` of all requests are inside the limit."""
    inside = np.cumsum(np.random.default_rng(11).random((RUNS, LOOKS[-1])) < true_share, axis=1)
    verdict = np.zeros(RUNS, dtype=int)
    for size in LOOKS:
        lower, upper = order_ranks(size, 0.99, look_confidence(len(LOOKS)))
        passed = inside[:, size - 1] >= upper
        failed = inside[:, size - 1] < lower
        verdict = np.where(verdict == 0, passed.astype(int) - failed.astype(int), verdict)
    return float(np.mean(verdict == 1)), float(np.mean(verdict == -1))


def test_a_rack_at_the_bound_passes_falsely_in_at_most_five_percent_of_runs():
    false_pass, _ = rates_of_the_rule(0.99 - 1e-9)
    assert 0.0 < false_pass <= 0.05


def test_a_rack_at_the_bound_fails_falsely_in_at_most_five_percent_of_runs():
    _, false_fail = rates_of_the_rule(0.99)
    assert 0.0 < false_fail <= 0.05


def test_a_good_rack_passes_and_a_bad_one_fails_nearly_always():
    assert rates_of_the_rule(0.9995)[0] > 0.95
    assert rates_of_the_rule(0.97)[1] > 0.95


def test_the_rule_is_what_decide_does_look_by_look():
    generator = np.random.default_rng(11)
    for share in (0.97, 0.985, 0.99, 0.995, 0.9995):
        for _ in range(20):
            values = generator.random(LOOKS[-1])
            for look, size in enumerate(LOOKS):
                decision = decide(values[:size], 0.99, share, Op.AT_MOST, look=look, looks=len(LOOKS))
                lower, upper = order_ranks(size, 0.99, 1 - 0.05 / 3)
                inside = int(np.sum(values[:size] <= share))
                expected = Verdict.PASS if inside >= upper else Verdict.FAIL if inside < lower else None
                if expected is None and look == 2:
                    expected = Verdict.UNKNOWN
                assert expected == decision.verdict


def test_a_single_look_at_299_good_samples_passes_and_at_298_is_unknown():
    passed = decide([1.0] * 299, 0.99, 1.0, Op.AT_MOST, look=0, looks=1)
    assert (Verdict.PASS, 1.0, 299, "") == (passed.verdict, passed.value, passed.count, passed.detail)
    open_ = decide([1.0] * 298, 0.99, 1.0, Op.AT_MOST, look=0, looks=1)
    assert Verdict.UNKNOWN == open_.verdict
    assert "298 samples cannot show <= 1: at least 299 are needed" == open_.detail


def test_an_undecided_look_asks_for_more_until_the_last_one_says_unknown():
    values = list(range(500))
    for look, expected in ((0, None), (1, None), (2, Verdict.UNKNOWN)):
        decision = decide(values, 0.99, 496, Op.AT_MOST, look=look, looks=3)
        assert expected == decision.verdict
        assert "500 samples leave it open: the bound 496 lies between" in decision.detail


def test_nothing_measured_is_unknown_at_the_end_and_never_a_pass():
    assert decide([], 0.99, 1.0, Op.AT_MOST, look=0, looks=3).verdict is None
    assert Verdict.UNKNOWN == decide([], 0.99, 1.0, Op.AT_MOST, look=2, looks=3).verdict
    assert Verdict.UNKNOWN == decide([], 0.99, 1.0, Op.AT_LEAST, look=0, looks=1).verdict


def test_failed_requests_as_infinity_fail_any_limit():
    values = [1.0] * 900 + [math.inf] * 100
    decision = decide(values, 0.99, 1e12, Op.AT_MOST, look=0, looks=1)
    assert (Verdict.FAIL, math.inf, math.inf) == (decision.verdict, decision.value, decision.bounds.lower)


def test_at_least_is_judged_from_the_lower_bound():
    values = np.arange(1000.0)
    assert Verdict.PASS == decide(values, 0.5, 450, Op.AT_LEAST, look=0, looks=1).verdict
    assert Verdict.FAIL == decide(values, 0.5, 550, Op.AT_LEAST, look=0, looks=1).verdict
    assert Verdict.UNKNOWN == decide(values, 0.5, 500, Op.AT_LEAST, look=0, looks=1).verdict


def test_an_error_rate_passes_on_its_upper_bound_and_fails_on_its_lower_one():
    assert Verdict.PASS == decide_proportion(0, 299, 0.01, Op.AT_MOST, look=0, looks=1).verdict
    assert Verdict.UNKNOWN == decide_proportion(0, 298, 0.01, Op.AT_MOST, look=0, looks=1).verdict
    assert Verdict.FAIL == decide_proportion(4, 10, 0.01, Op.AT_MOST, look=0, looks=1).verdict
    assert decide_proportion(1, 100, 0.01, Op.AT_MOST, look=0, looks=3).verdict is None
    assert Verdict.UNKNOWN == decide_proportion(0, 0, 0.01, Op.AT_MOST, look=0, looks=1).verdict


@pytest.mark.parametrize(("look", "looks"), [(3, 3), (-1, 1), (0, 0), (0, 4)])
def test_a_look_that_was_not_planned_is_refused(look, looks):
    with pytest.raises(ValueError, match="look"):
        decide([1.0], 0.5, 1.0, Op.AT_MOST, look=look, looks=looks)


def test_equality_has_no_confidence_bound():
    with pytest.raises(ValueError, match="equality"):
        decide([1.0], 0.5, 1.0, Op.EQUAL, look=0, looks=1)
