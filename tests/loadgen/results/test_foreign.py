"""Results of other load generators are judged as far as they go, and no further."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackgate.cli import main
from rackgate.loadgen.results.foreign import Distribution, ForeignError, read_foreign
from rackgate.nouns.measurement import Reason
from rackgate.statistics.percentiles import percentile_bounds

DATA = Path(__file__).parents[1] / "data"
LATENCY = {
    "unit": "ms",
    "avg": 60,
    "p1": 30,
    "p50": 50,
    "p90": 70,
    "p95": 80,
    "p99": 90,
    "min": 29,
    "max": 99,
}
AIPERF = {
    "schema_version": "1", "aiperf_version": "0.13.0", "was_cancelled": False, "is_complete": True,
    "request_count": {"unit": "requests", "avg": 1000.0}, "request_error_rate": {"unit": "%", "avg": 0.0},
    "time_to_first_token": {**LATENCY, "count": 1000}, "inter_token_latency": {**LATENCY, "count": 1000},
    "request_latency": {**LATENCY, "count": 1000},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 445.5},
    "input_config": {"phases": [{"kind": "profiling", "type": "concurrency", "concurrency": 4}]},
}  # fmt: skip
STATISTIC = {
    "mean": 60.0, "min": 29.0, "max": 99.0, "count": 1000,
    "percentiles": {"p001": 29.5, "p01": 30.0, "p50": 50.0, "p95": 80.0, "p99": 90.0, "p999": 98.0},
}  # fmt: skip
GUIDELLM = {
    "benchmarks": [
        {
            "metrics": {
                "request_totals": {"successful": 1000, "errored": 0, "incomplete": 2, "total": 1002},
                "time_to_first_token_ms": {"successful": STATISTIC},
                "inter_token_latency_ms": {"successful": STATISTIC},
                "output_tokens_per_second": {"successful": {"mean": 321.0}},
            }
        }
    ]
}
VLLM = {
    "backend": "openai-chat", "model_id": "m", "num_prompts": 1000, "completed": 1000, "duration": 9.0,
    "request_throughput": 11.0, "output_throughput": 352.0, "mean_ttft_ms": 5.0, "p99_ttft_ms": 7.0,
    "mean_e2el_ms": 60.0, "p99_e2el_ms": 90.0, "p100_e2el_ms": 99.0,
}  # fmt: skip
SLO = """
[load.mine]
prompt_tokens = 8
output_tokens = 8
looks = [1000]

[[slo]]
id = "single_card.mine_{name}"
load = "mine"
metric = "{metric}"
statistic = "{statistic}"
op = "{op}"
bound = {bound}
unit = "{unit}"
scope = "{scope}"
source = "test"
"""


@pytest.fixture
def judged(tmp_path, capsys):
    """Judge a result file by one row; return exit status, verdict and detail."""

    def run(data, metric, bound, *, statistic="p99", unit="ms", op="<=", scope="rack"):
        source, rows = tmp_path / "result.json", tmp_path / "rows.toml"
        source.write_text(json.dumps(data))
        rows.write_text(
            SLO.format(
                name="row", metric=metric, statistic=statistic, op=op, bound=bound, unit=unit, scope=scope
            )
        )
        status = main(["judge", "--from", str(source), "--slo", str(rows), "--load", "mine", "--json"])
        said = capsys.readouterr()
        if status == 4:
            return status, said.err, ""
        (row,) = json.loads(said.out)
        return status, row["verdict"], row["detail"]

    return run


@pytest.mark.parametrize("data", [AIPERF, GUIDELLM])
def test_a_percentile_is_judged_by_the_values_around_it(judged, data):
    assert (0, "PASS") == judged(data, "ttft_ms", 100.0)[:2]
    assert (1, "FAIL") == judged(data, "ttft_ms", 60.0)[:2]
    assert (1, "UNKNOWN") == judged(data, "ttft_ms", 91.0)[:2]  # P99 is 90, but the bound reaches to 98


def test_failed_requests_leave_no_percentile(judged):
    data = json.loads(json.dumps(GUIDELLM))
    data["benchmarks"][0]["metrics"]["request_totals"]["errored"] = 3
    status, verdict, detail = judged(data, "ttft_ms", 1000.0)
    assert (1, "UNKNOWN") == (status, verdict)
    assert "leave the 3 failed requests out" in detail


def test_vllms_first_token_is_not_ours(judged):
    assert "even one that holds only a role" in judged(VLLM, "ttft_ms", 1000.0)[2]
    assert "TPOT counts from there" in judged(VLLM, "tpot_ms", 1000.0)[2]
    rate = {"statistic": "value", "unit": "tok/s", "op": ">="}
    assert (0, "PASS") == judged(VLLM, "output_token_throughput", 300.0, **rate)[:2]
    assert (1, "FAIL") == judged(VLLM, "output_token_throughput", 400.0, **rate)[:2]


def test_a_low_percentile_of_vllm_is_not_taken_for_a_high_one(judged):
    told = {"p5_e2el_ms": 10.0, "p50_e2el_ms": 50.0, "p99.9_e2el_ms": 98.0}
    data = {**VLLM, **told}
    row = {"statistic": "p50"}
    assert (1, "UNKNOWN") == judged(data, "e2e_ms", 60.0, **row)[:2]  # its bound reaches to 90
    assert (0, "PASS") == judged(data, "e2e_ms", 91.0, **row)[:2]
    assert (0, "PASS") == judged(data, "e2e_ms", 98.5)[:2]


def test_the_latency_of_every_request_decides_by_our_own_ranks(judged):
    each = {"latencies": [0.001 * number for number in range(1, 1001)], "failed": 0}
    row = {"statistic": "p95"}
    assert (0, "PASS") == judged({**VLLM, **each}, "e2e_ms", 970.0, **row)[:2]
    assert (1, "FAIL") == judged({**VLLM, **each}, "e2e_ms", 930.0, **row)[:2]
    assert (1, "UNKNOWN") == judged({**VLLM, **each, "failed": 1}, "e2e_ms", 970.0, **row)[:2]


def test_a_rate_driven_run_of_aiperf_does_not_count_from_the_schedule(judged):
    real = json.loads((DATA / "aiperf-0.13.0-rate.json").read_text())
    for metric in ("ttft_ms", "e2e_ms"):
        status, verdict, why = judged(real, metric, 1000.0)
        assert (1, "UNKNOWN") == (status, verdict)
        assert "of which it may skip arrivals" in why
    assert "PASS" == judged(real, "output_token_throughput", 1e9, unit="tok/s", statistic="value")[1]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "does not say by what"),
        ({"loadgen": {"request_rate": 20.0}}, "had a rate or a schedule"),
        ({"input": {"fixed_schedule": True}}, "had a rate or a schedule"),
        ({"phases": [{"kind": "profiling", "type": "fixed_schedule"}]}, "had a rate or a schedule"),
    ],
)
def test_how_aiperf_started_its_requests_is_looked_at(judged, config, words):
    assert words in judged({**AIPERF, "input_config": config}, "ttft_ms", 1000.0)[2]


def test_vllms_latency_leaves_out_what_waited_for_a_free_place(judged):
    capped = {**VLLM, "max_concurrency": 8, "request_rate": 20.0}
    assert "waited for a free place" in judged(capped, "e2e_ms", 1000.0)[2]
    assert (0, "PASS") == judged({**capped, "request_rate": "inf"}, "e2e_ms", 1000.0)[:2]


@pytest.mark.parametrize("name", ["aiperf-0.13.0.json", "guidellm-0.8.1.json"])
def test_a_file_that_the_tool_itself_wrote_is_read(judged, name):
    data = json.loads((DATA / name).read_text())
    assert (0, "PASS") == judged(data, "ttft_ms", 90.0, statistic="p50")[:2]
    assert (1, "FAIL") == judged(data, "ttft_ms", 1.0, statistic="p50")[:2]
    rate = {"statistic": "value", "unit": "tok/s", "op": ">="}
    assert (0, "PASS") == judged(data, "output_token_throughput", 100.0, **rate)[:2]
    assert "UNKNOWN" == judged(data, "error_rate", 0.01, statistic="value", unit="ratio")[1]


def test_a_file_that_vllm_itself_wrote_is_read(judged):
    data = json.loads((DATA / "vllm-bench-serve-0.32.0.json").read_text())
    row = {"statistic": "p50"}
    assert (0, "PASS") == judged(data, "e2e_ms", 78.0, **row)[:2]
    assert (1, "FAIL") == judged(data, "e2e_ms", 71.0, **row)[:2]
    assert "UNKNOWN" == judged(data, "ttft_ms", 1000.0, **row)[1]
    without = {name: value for name, value in data.items() if name != "latencies"}
    assert (1, "UNKNOWN") == judged(without, "e2e_ms", 78.0, **row)[:2]  # P5, P50 and P95 alone leave it open
    assert (0, "PASS") == judged(without, "e2e_ms", 93.0, **row)[:2]
    rate = {"statistic": "value", "unit": "tok/s", "op": ">="}
    assert (0, "PASS") == judged(data, "output_token_throughput", 400.0, **rate)[:2]


def test_guidellms_percentiles_of_tpot_are_over_tokens_and_those_of_its_requests_are_not(judged):
    assert "over tokens" in judged(GUIDELLM, "tpot_ms", 1000.0)[2]
    data = json.loads((DATA / "guidellm-0.8.1.json").read_text())
    assert (0, "PASS") == judged(data, "tpot_ms", 16.5, statistic="p95")[:2]
    assert (1, "UNKNOWN") == judged(data, "tpot_ms", 16.5, statistic="p99")[:2]  # 60 requests, not 420


def test_guidellms_latency_of_a_load_with_a_schedule_counts_from_the_schedule(judged):
    data = json.loads((DATA / "guidellm-0.8.1.json").read_text())
    (one,) = data["benchmarks"]
    one["config"]["strategy"]["type_"] = "poisson"
    one["requests"]["successful"] = [
        {**request, "request_dispatch_delay": 0.5} for request in one["requests"]["successful"]
    ]
    assert (1, "FAIL") == judged(data, "ttft_ms", 500.0, statistic="p50")[:2]
    assert (1, "FAIL") == judged(data, "e2e_ms", 550.0, statistic="p50")[:2]
    del one["requests"]
    assert "this load had a schedule" in judged(data, "ttft_ms", 500.0, statistic="p50")[2]


@pytest.mark.parametrize("data", [AIPERF, GUIDELLM, VLLM])
def test_their_error_rate_can_fail_but_never_pass(judged, data):
    rate = {"statistic": "value", "unit": "ratio"}
    status, verdict, detail = judged(data, "error_rate", 0.01, **rate)
    assert (1, "UNKNOWN") == (status, verdict)
    assert "without a terminal signal" in detail
    broken = json.loads(json.dumps(data).replace('"errored": 0', '"errored": 50'))
    broken |= {"completed": 900, "error_request_count": {"avg": 50}} if data is not GUIDELLM else {}
    assert "FAIL" == judged(broken, "error_rate", 0.01, **rate)[1]


def test_a_row_per_card_is_unknown(judged):
    assert "does not tell one card from another" in judged(AIPERF, "ttft_ms", 1000.0, scope="card")[2]


def test_what_the_file_lacks_is_unknown(judged):
    data = {name: value for name, value in AIPERF.items() if name != "request_latency"}
    assert "AIPerf's file does not hold it" == judged(data, "e2e_ms", 1000.0)[2]
    assert "it is not complete" in judged({**AIPERF, "was_cancelled": True}, "e2e_ms", 1000.0)[2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read"),
        ("[]", "of no known load generator"),
        ('{"benchmarks": [{}]}', "not as guidellm writes it"),
        ('{"benchmarks": []}', "0 benchmarks in one file"),
        ('{"aiperf_version": "1"}', "not as aiperf writes it"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path, text, words):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ForeignError, match=words):
        read_foreign(path)


def test_a_metric_without_counts_has_a_reason(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({name: value for name, value in VLLM.items() if name != "num_prompts"}))
    assert Reason.ABSENT is read_foreign(path).measurement("error_rate", "value", "ratio").reason


@settings(max_examples=60)
@given(
    values=st.lists(st.floats(0, 1e4), min_size=1, max_size=400),
    quantile=st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_bounds_from_a_few_percentiles_contain_those_of_all_samples(values, quantile):
    few = {share: float(np.quantile(values, share)) for share in (0.0, 0.01, 0.5, 0.9, 0.95, 0.99, 1.0)}
    told = Distribution(quantiles=few, count=len(values)).bounds(quantile)
    exact = percentile_bounds(values, quantile)
    slack = 1e-9 * max(values) + 1e-9
    if told.upper is not None:
        assert exact.upper is not None
        assert told.upper >= exact.upper - slack
    if told.lower is not None:
        assert exact.lower is not None
        assert told.lower <= exact.lower + slack
