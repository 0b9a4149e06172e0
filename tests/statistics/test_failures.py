from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.sample import Outcome, Sample
from rackgate.slo import Op
from rackgate.statistics import (
    decide,
    decide_proportion,
    summarise_latency,
    throughput_per_s,
    with_failures,
)
from rackgate.verdict import Verdict

CASES = Path(__file__).parent.parent / "cases"
EXPECTED = json.loads((CASES / "expected.json").read_text())


def summary_of(case: str, field: str):
    lines = (CASES / "inputs" / f"{case}.jsonl").read_text().splitlines()
    requests = [json.loads(line) for line in lines]
    served = [request[field] for request in requests if request["ok"]]
    return summarise_latency(served, len(requests) - len(served))


def verdict_of_errors(summary) -> Verdict:
    return decide_proportion(summary.failed, summary.attempted, 0.01, Op.AT_MOST, look=0, looks=1).verdict


def test_fast_refusals_do_not_improve_latency():
    expected = EXPECTED["MET-07"]["expected"]
    summary = summary_of("MET-07", "ttft_ms")
    assert expected == {
        "requests": summary.attempted,
        "failed": summary.failed,
        "error_rate": summary.error_rate,
        "ttft_p50_ms_nearest_rank": summary.p50,
        "ttft_p99_ms_nearest_rank": summary.p99,
        "e2e_min_ms": summary_of("MET-07", "e2e_ms").minimum,
        "verdict_with_max_error_rate_0.01": str(verdict_of_errors(summary)),
    }
    assert (1200.0, math.inf, math.inf) == (summary.judged_p50, summary.judged_p95, summary.judged_p99)


def test_when_all_requests_failed_latency_is_null_and_the_verdict_fail():
    expected = EXPECTED["MET-09"]["expected"]
    summary = summary_of("MET-09", "ttft_ms")
    assert (expected["requests"], expected["failed"]) == (summary.attempted, summary.failed)
    assert expected["error_rate"] == summary.error_rate
    assert expected["ttft_p99_ms"] == summary.p99
    assert math.inf == summary.judged_p99
    assert expected["output_tok_s"] == throughput_per_s([], [], start_ns=0, end_ns=10**9)
    assert expected["verdict"] == str(verdict_of_errors(summary))


def test_judged_latency_of_failures_alone_is_never_accepted():
    judged = with_failures([], 5)
    assert Verdict.FAIL == decide(judged, 0.5, 1e9, Op.AT_MOST, look=0, looks=1).verdict
    assert not decide(judged, 0.99, 1e9, Op.AT_MOST, look=0, looks=1).verdict.accepted


def test_time_per_output_token_leaves_out_the_first_token():
    case = json.loads((CASES / "inputs" / "MET-19.json").read_text())
    first_ns, last_ns = case["ttft_ms"] * 1_000_000, case["last_token_ms"] * 1_000_000
    sample = Sample(
        request_id="r",
        engine="n1/gpu0",
        load="l",
        label="l",
        outcome=Outcome.OK,
        scheduled_ns=0,
        sent_ns=0,
        token_ns=(first_ns, last_ns),
        output_tokens=case["completion_tokens"],
    )
    assert EXPECTED["MET-19"]["expected"]["tpot_excluding_first_ms"] == sample.tpot_ms
    assert "(last token - first token) / (output tokens - 1)" in Sample.tpot_ms.__doc__


def test_nothing_attempted_has_no_error_rate_and_no_percentile():
    summary = summarise_latency([], 0)
    assert (0, None, None, None) == (
        summary.attempted,
        summary.error_rate,
        summary.p99,
        summary.judged_p99,
    )


@given(st.lists(st.floats(0, 1e6), max_size=200), st.integers(0, 50))
def test_more_failures_never_improve_a_judged_percentile(latencies, failed):
    before, after = summarise_latency(latencies, failed), summarise_latency(latencies, failed + 1)
    for name in ("judged_p50", "judged_p95", "judged_p99"):
        assert getattr(before, name) is None or getattr(before, name) <= getattr(after, name)
    assert (before.p50, before.p99) == (after.p50, after.p99)


def test_more_than_one_percent_errors_make_p99_infinite_and_one_percent_does_not():
    assert 1.0 == summarise_latency(np.ones(99), 1).judged_p99
    assert math.inf == summarise_latency(np.ones(98), 2).judged_p99


def test_an_ok_request_without_a_latency_is_refused():
    with pytest.raises(ValueError, match="NaN is not a latency"):
        with_failures([1.0, math.nan], 0)
    with pytest.raises(ValueError, match="cannot have failed"):
        with_failures([], -1)
