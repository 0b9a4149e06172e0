"""Metric names of engines, mapped to ours."""

from __future__ import annotations

NAMES: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "vllm:num_requests_running": ("requests_running", ()),
    "vllm:num_requests_waiting": ("requests_waiting", ()),
    "vllm:kv_cache_usage_perc": ("kv_cache_use", ()),
    "vllm:gpu_cache_usage_perc": ("kv_cache_use", ()),
    "vllm:num_preemptions": ("preemptions", ()),
    "vllm:prefix_cache_queries": ("prefix_cache_queries", ()),
    "vllm:prefix_cache_hits": ("prefix_cache_hits", ()),
    "vllm:gpu_prefix_cache_queries": ("prefix_cache_queries", ()),
    "vllm:gpu_prefix_cache_hits": ("prefix_cache_hits", ()),
    "vllm:prompt_tokens": ("prompt_tokens", ()),
    "vllm:generation_tokens": ("generation_tokens", ()),
    "vllm:request_success": ("requests_succeeded", ()),
    "sglang:num_running_reqs": ("requests_running", ()),
    "sglang:num_queue_reqs": ("requests_waiting", ()),
    "sglang:token_usage": ("kv_cache_use", ()),
    "sglang:prompt_tokens": ("prompt_tokens", ()),
    "sglang:cached_tokens": ("prefix_cache_hits", ()),
    "sglang:generation_tokens": ("generation_tokens", ()),
    "sglang:num_requests": ("requests_succeeded", ()),
    "nv_trt_llm_request_metrics": ("requests_running", (("request_type", "scheduled"),)),
    "nv_trt_llm_request_metrics#waiting": ("requests_waiting", (("request_type", "waiting"),)),
    "nv_trt_llm_kv_cache_block_metrics": ("kv_cache_use", (("kv_cache_block_type", "fraction"),)),
    "nv_inference_pending_request_count": ("requests_waiting", ()),
    "nv_inference_request_success": ("requests_succeeded", ()),
    "trtllm_kv_cache_utilization": ("kv_cache_use", ()),
    "trtllm_request_success": ("requests_succeeded", ()),
    "num_requests_running": ("requests_running", ()),
    "num_requests_waiting": ("requests_waiting", ()),
    "gpu_cache_usage_perc": ("kv_cache_use", ()),
    "prompt_tokens": ("prompt_tokens", ()),
    "generation_tokens": ("generation_tokens", ()),
    "request_success": ("requests_succeeded", ()),
    "llamacpp:requests_processing": ("requests_running", ()),
    "llamacpp:requests_deferred": ("requests_waiting", ()),
    "llamacpp:kv_cache_usage_ratio": ("kv_cache_use", ()),
    "llamacpp:prompt_tokens": ("prompt_tokens", ()),
    "llamacpp:tokens_predicted": ("generation_tokens", ()),
}
"""(our field, labels that a series must have) by the engine's name without `_total`; after # a variant.

Names without a prefix are NIM's.
"""

TTFT_HISTOGRAMS = (
    "vllm:time_to_first_token_seconds",
    "sglang:time_to_first_token_seconds",
    "trtllm_time_to_first_token_seconds",
    "time_to_first_token_seconds",
)
"""Histograms of the time to first token, as the server sees it."""
