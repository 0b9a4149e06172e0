"""A failed request is infinitely late and counts as an error: failing fast never looks good."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.judging.judge import judge
from rackgate.metrics.requests import latency, rates
from rackgate.nouns.measurement import Reason
from rackgate.nouns.verdict import Verdict
from rackgate.statistics.percentiles import with_failures

CASES = Path(__file__).parent.parent / "cases"
EXPECTED = json.loads((CASES / "expected.json").read_text())


@pytest.fixture
def case(seen, request_of):
    """Read a case's requests as a finished load."""

    def case(name):
        lines = (CASES / "inputs" / f"{name}.jsonl").read_text().splitlines()
        return seen(
            [
                request_of(
                    one["id"],
                    ttft_ms=one["ttft_ms"] if one["ok"] else None,
                    e2e_ms=one["e2e_ms"] if one["ok"] else None,
                )
                for one in map(json.loads, lines)
            ]
        )

    return case


def measured(function, observation, check):
    return function(observation, check.slo, check.entity)


def test_fast_refusals_do_not_improve_latency(case, check_of):
    expected, observation = EXPECTED["MET-07"]["expected"], case("MET-07")
    errors = check_of("error_rate", "ratio", bound=0.01)
    rate = measured(rates.error_rate, observation, errors)
    assert (expected["requests"], expected["error_rate"]) == (rate.count, rate.value)
    assert expected["verdict_with_max_error_rate_0.01"] == str(judge(errors, rate).verdict)
    p50 = measured(latency.ttft_ms, observation, check_of("ttft_ms", "ms", statistic="p50"))
    p99 = measured(latency.ttft_ms, observation, check_of("ttft_ms", "ms", statistic="p99"))
    assert (1200.0, math.inf) == (p50.value, p99.value)
    for one, alone in ((p50, "p50"), (p99, "p99")):
        assert f"{expected['failed']} failed requests count as infinite" in one.detail
        assert f"over ok requests alone {expected[f'ttft_{alone}_ms_nearest_rank']:.1f} ms" in one.detail


def test_when_every_request_failed_nothing_is_fast_and_the_verdict_is_fail(case, check_of):
    expected, observation = EXPECTED["MET-09"]["expected"], case("MET-09")
    errors, late = check_of("error_rate", "ratio", bound=0.01), check_of("ttft_ms", "ms", statistic="p99")
    rate = measured(rates.error_rate, observation, errors)
    assert (expected["requests"], expected["error_rate"]) == (rate.count, rate.value)
    assert {expected["verdict"]} == {
        str(judge(errors, rate).verdict),
        str(
            judge(check_of("ttft_ms", "ms", bound=1e9), measured(latency.ttft_ms, observation, late)).verdict
        ),
    }
    tokens = check_of("output_token_throughput", "tok/s")
    assert expected["output_tok_s"] == measured(rates.output_token_throughput, observation, tokens).value


def test_nothing_that_was_attempted_is_no_value(seen, check_of):
    observation = seen([])
    for function, row in (
        (rates.error_rate, check_of("error_rate", "ratio")),
        (latency.ttft_ms, check_of("ttft_ms", "ms", statistic="p99")),
    ):
        nothing = measured(function, observation, row)
        assert (None, Reason.ABSENT) == (nothing.value, nothing.reason)
        assert Verdict.UNKNOWN == judge(row, nothing).verdict


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=100), st.integers(0, 30), st.data())
def test_one_more_failure_never_makes_a_percentile_better(latencies, failed, data):
    from rackgate.statistics.percentiles import nearest_rank

    quantile = data.draw(st.sampled_from([0.5, 0.95, 0.99]))
    before = nearest_rank(with_failures(latencies, failed), quantile)
    assert before <= nearest_rank(with_failures(latencies, failed + 1), quantile)


def test_more_than_one_percent_errors_make_p99_infinite_and_one_percent_does_not(seen, request_of, check_of):
    row = check_of("ttft_ms", "ms", statistic="p99")
    for failed, p99 in ((1, 7.0), (2, math.inf)):
        requests = [request_of(number, ttft_ms=7.0 if number >= failed else None) for number in range(100)]
        assert p99 == measured(latency.ttft_ms, seen(requests), row).value


def test_an_ok_request_without_a_latency_is_refused():
    with pytest.raises(ValueError, match="NaN is not a latency"):
        with_failures([1.0, math.nan], 0)
    with pytest.raises(ValueError, match="cannot have failed"):
        with_failures([], -1)
