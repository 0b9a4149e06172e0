"""The rule of at most three looks, from requests to the verdict, and how often it errs."""

import math

import numpy as np
import pytest

from rackgate.judging.judge import judge
from rackgate.metrics.requests import latency
from rackgate.nouns.slo import Op
from rackgate.nouns.verdict import Verdict
from rackgate.statistics.looks import look_confidence
from rackgate.statistics.percentiles import order_ranks

LOOKS = (408, 1000, 2000)
RUNS = 4000


def rates_of_the_rule(true_share):
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


@pytest.fixture
def judged(seen, request_of, check_of):
    """Judge a percentile of TTFTs (ms; infinity is a failed request) as one of so many looks."""

    def judged(ttfts_ms, bound, *, statistic="p99", op=Op.AT_MOST, looks=1):
        requests = [
            request_of(number, ttft_ms=ttft if math.isfinite(ttft) else None)
            for number, ttft in enumerate(ttfts_ms)
        ]
        row = check_of("ttft_ms", "ms", statistic=statistic, op=op, bound=bound)
        measured = latency.ttft_ms(seen(requests, looks=looks), row.slo, row.entity)
        return judge(row, measured)

    return judged


@pytest.mark.parametrize("share", [0.97, 0.985, 0.99, 0.995, 0.9995])
def test_the_rule_is_what_the_judge_does(judged, share):
    values = np.random.default_rng(11).random(LOOKS[-1]) * 1000.0
    for size in LOOKS:
        lower, upper = order_ranks(size, 0.99, look_confidence(3))
        inside = int(np.sum(values[:size] <= share * 1000.0))
        expected = Verdict.PASS if inside >= upper else Verdict.FAIL if inside < lower else Verdict.UNKNOWN
        decision = judged(values[:size], share * 1000.0, looks=3)
        assert (expected, expected is Verdict.UNKNOWN) == (decision.verdict, decision.open)


def test_a_single_look_at_299_good_samples_passes_and_at_298_is_open(judged):
    assert Verdict.PASS == judged([1.0] * 299, 1.0).verdict
    undecided = judged([1.0] * 298, 1.0)
    assert (Verdict.UNKNOWN, True) == (undecided.verdict, undecided.open)
    assert "298 samples cannot show a P99: at least 299 are needed" == undecided.detail


def test_an_undecided_look_says_between_which_bounds_the_limit_lies(judged):
    undecided = judged(range(500), 496.0, looks=3)
    assert (Verdict.UNKNOWN, True) == (undecided.verdict, undecided.open)
    assert "500 samples leave it open: 496 lies between the confidence bounds 489 and 499" == undecided.detail


def test_failed_requests_as_infinity_fail_any_limit(judged):
    assert Verdict.FAIL == judged([1.0] * 900 + [math.inf] * 100, 1e12).verdict


def test_at_least_is_judged_from_the_lower_bound(judged):
    values = np.arange(1000.0)
    for bound, verdict in ((450, Verdict.PASS), (550, Verdict.FAIL), (500, Verdict.UNKNOWN)):
        assert verdict == judged(values, bound, statistic="p50", op=Op.AT_LEAST).verdict


@pytest.mark.parametrize("looks", [0, 4])
def test_a_number_of_looks_that_was_not_planned_is_refused(looks):
    with pytest.raises(ValueError, match="looks"):
        look_confidence(looks)
