import json

import httpx
import pytest
from local_server import Answer, serving

from rackgate.engines.metrics_page import MetricsPage
from rackgate.loadgen.engine_counters import (
    fetch_engine_page,
    histogram_entry,
    histogram_of,
    ttft_histograms_between,
)
from rackgate.nouns.measurement import Reason
from rackgate.simulator.rack import start_rack
from rackgate.simulator.settings import RackSettings
from rackgate.telemetry.engine_metrics import (
    EngineMetricsSource,
    EnginePage,
    TtftHistogram,
    parse_engine_page,
)

VLLM = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 9.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.4
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.9
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 1000.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 5.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5",model_name="m"} 9.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 10.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 10.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 2.5
"""
SGLANG = """
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m"} 12.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m"} 5.0
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m"} 0.28
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="m"} 7557572.0
"""
TRITON = """
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 4
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 8
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
# TYPE nv_trt_llm_kv_cache_block_metrics gauge
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.25
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 90
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="tensorrt_llm",version="1"} 77
"""
TRTLLM = """
# TYPE trtllm_request_success_total counter
trtllm_request_success_total{engine_type="trtllm",finished_reason="stop",model_name="m"} 12.0
trtllm_request_success_total{engine_type="trtllm",finished_reason="length",model_name="m"} 3.0
# TYPE trtllm_kv_cache_utilization gauge
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="m"} 0.35
# TYPE trtllm_time_to_first_token_seconds histogram
trtllm_time_to_first_token_seconds_bucket{engine_type="trtllm",le="0.1",model_name="m"} 4.0
trtllm_time_to_first_token_seconds_bucket{engine_type="trtllm",le="+Inf",model_name="m"} 15.0
trtllm_time_to_first_token_seconds_count{engine_type="trtllm",model_name="m"} 15.0
trtllm_time_to_first_token_seconds_sum{engine_type="trtllm",model_name="m"} 3.5
"""
NIM = """
# TYPE num_requests_running gauge
num_requests_running{model_name="m"} 3.0
# TYPE num_requests_waiting gauge
num_requests_waiting{model_name="m"} 1.0
# TYPE gpu_cache_usage_perc gauge
gpu_cache_usage_perc{model_name="m"} 0.5
# TYPE generation_tokens_total counter
generation_tokens_total{model_name="m"} 120.0
# TYPE time_to_first_token_seconds histogram
time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 4.0
time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 6.0
time_to_first_token_seconds_count{model_name="m"} 6.0
time_to_first_token_seconds_sum{model_name="m"} 1.5
"""
LLAMA = """
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 1
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 345
"""


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (
            VLLM,
            {
                "requests_running": 7.0,
                "requests_waiting": 9.0,
                "kv_cache_use": 0.9,
                "preemptions": 2.0,
                "generation_tokens": 1000.0,
                "server_ttft_count": 10.0,
                "server_ttft_sum_s": 2.5,
            },
        ),
        (
            SGLANG,
            {
                "requests_running": 12.0,
                "requests_waiting": 5.0,
                "kv_cache_use": 0.28,
                "generation_tokens": 7557572.0,
            },
        ),
        (
            TRTLLM,
            {
                "requests_succeeded": 15.0,
                "kv_cache_use": 0.35,
                "server_ttft_count": 15.0,
                "server_ttft_sum_s": 3.5,
            },
        ),
        (
            TRITON,
            {
                "requests_running": 8.0,
                "requests_waiting": 4.0,
                "kv_cache_use": 0.25,
                "requests_succeeded": 77.0,
            },
        ),
        (
            NIM,
            {
                "requests_running": 3.0,
                "requests_waiting": 1.0,
                "kv_cache_use": 0.5,
                "generation_tokens": 120.0,
                "server_ttft_count": 6.0,
                "server_ttft_sum_s": 1.5,
            },
        ),
        (LLAMA, {"requests_running": 2.0, "requests_waiting": 1.0, "generation_tokens": 345.0}),
    ],
    ids=["vllm", "sglang", "trtllm", "triton", "nim", "llama.cpp"],
)
def test_each_engines_names_are_ours(page, expected):
    assert expected == dict(parse_engine_page(page).values)


def test_the_servers_first_tokens_of_a_window_have_bounds():
    before = TtftHistogram((0.1, 0.5, float("inf")), (5, 9, 10), 2.5)
    after = TtftHistogram((0.1, 0.5, float("inf")), (5, 29, 30), 9.5)
    window = after.since(before)
    assert (window.count, window.sum_s) == (20, 7.0)
    assert window.quantile_bounds_s(0.5) == (0.1, 0.5)
    assert before.since(after) is None
    assert TtftHistogram((0.1,), (0,), 0.0).quantile_bounds_s(0.5) is None


def test_the_page_of_a_running_engine_moves_with_its_requests():
    with start_rack(RackSettings()) as rack:
        engine = rack.target.engines[0]
        source = EngineMetricsSource(engine.entity, engine.nodes[0], f"{engine.url}/metrics")
        first = {one.field: one.value for one in source.poll()}
        page = MetricsPage(url=f"{engine.url}/metrics", headers={})
        before = {engine.entity: fetch_engine_page(page)}
        body = {"model": engine.model, "max_tokens": 4, "messages": [{"role": "user", "content": "hello"}]}
        httpx.post(
            f"{engine.url}/v1/chat/completions", json=body, timeout=30, trust_env=False
        ).raise_for_status()
        after = {one.field: one.value for one in source.poll()}
        counted = ttft_histograms_between(before, {engine.entity: fetch_engine_page(page)})
        source.close()
    assert after["generation_tokens"] - first["generation_tokens"] == 4
    assert counted[engine.entity].count == 1
    assert (
        histogram_of(json.loads(json.dumps(histogram_entry(counted[engine.entity]))))
        == counted[engine.entity]
    )


def test_an_engine_that_was_started_again_or_tells_no_histogram_counted_nothing_meanwhile():
    few = EnginePage({}, TtftHistogram((0.1, float("inf")), (1, 1), 0.1))
    many = EnginePage({}, TtftHistogram((0.1, float("inf")), (5, 6), 0.9))
    before = {"a": few, "b": many, "c": few, "d": None}
    after = {"a": many, "b": few, "c": EnginePage({}, None), "d": many, "e": many}
    assert list(ttft_histograms_between(before, after)) == ["a"]


def test_ranks_that_one_side_alone_counted_widen_the_bucket():
    histogram = TtftHistogram((0.1, 0.2, 0.5, float("inf")), (10, 50, 90, 100), 20.0)
    assert histogram.quantile_bounds_s(0.5) == (0.1, 0.2)
    assert histogram.quantile_bounds_s(0.5, slack=5) == (0.1, 0.5)
    assert histogram.quantile_bounds_s(0.95, slack=50) == (0.1, float("inf"))


def test_histograms_of_two_looks_are_one_and_other_edges_are_none():
    one = TtftHistogram((0.1, float("inf")), (5, 6), 0.9)
    assert one.plus(one) == TtftHistogram((0.1, float("inf")), (10, 12), 1.8)
    assert one.plus(TtftHistogram((0.2, float("inf")), (5, 6), 0.9)) is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(404), Reason.UNSUPPORTED),
        (Answer(401), Reason.NO_PERMISSION),
        (Answer(503), Reason.UNREACHABLE),
        (Answer(200, "python_gc_objects_collected_total 3\n"), Reason.UNSUPPORTED),
        (Answer(200, "<html>{{{</html>"), Reason.UNSUPPORTED),
    ],
)
def test_an_engine_without_metrics_is_a_reason(answer, reason):
    with serving(lambda _: answer) as url:
        source = EngineMetricsSource("engine-1", "n1", f"{url}/metrics")
        assert {one.reason for one in source.poll()} == {reason}
        source.close()
