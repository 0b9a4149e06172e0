"""The metrics page of a simulated engine, with vLLM's names."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

_TTFT_BUCKETS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5),
    *(0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0),
)


@dataclass(slots=True, kw_only=True)
class EngineMetrics:
    """Counters of one engine process; a restart resets them."""

    model: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    finished: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0, "abort": 0})
    ttft_counts: list[int] = field(default_factory=lambda: [0] * (len(_TTFT_BUCKETS_S) + 1))
    ttft_sum_s: float = 0.0

    def count_first_token(self, ttft_s: float) -> None:
        """Add a time to first token to the histogram."""
        self.ttft_counts[bisect_left(_TTFT_BUCKETS_S, ttft_s)] += 1
        self.ttft_sum_s += ttft_s

    def render(self, *, running: int, waiting: int, kv_usage: float) -> bytes:
        """Return the page."""
        label = f'engine="0",model_name="{self.model}"'
        lines: list[str] = []

        def metric(name: str, kind: str, text: str, value: float) -> None:
            lines.extend(
                (f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name}{{{label}}} {float(value)!r}")
            )

        metric("vllm:num_requests_running", "gauge", "Number of requests in execution batches.", running)
        metric("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", waiting)
        metric("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", kv_usage)
        metric("vllm:prefix_cache_queries_total", "counter", "Queried tokens.", self.prompt_tokens)
        metric("vllm:prefix_cache_hits_total", "counter", "Cached tokens.", self.cached_tokens)
        metric("vllm:num_preemptions_total", "counter", "Cumulative number of preemptions.", 0)
        metric("vllm:prompt_tokens_total", "counter", "Number of prefill tokens.", self.prompt_tokens)
        metric(
            "vllm:generation_tokens_total", "counter", "Number of generation tokens.", self.generation_tokens
        )
        name = "vllm:request_success_total"
        lines += [f"# HELP {name} Count of successfully processed requests.", f"# TYPE {name} counter"]
        lines += [
            f'{name}{{{label},finished_reason="{reason}"}} {float(count)!r}'
            for reason, count in self.finished.items()
        ]
        self._render_ttft(lines, label)
        return ("\n".join(lines) + "\n").encode()

    def _render_ttft(self, lines: list[str], label: str) -> None:
        name = "vllm:time_to_first_token_seconds"
        lines += [f"# HELP {name} Histogram of time to first token in seconds.", f"# TYPE {name} histogram"]
        total = 0
        for edge, count in zip((*map(str, _TTFT_BUCKETS_S), "+Inf"), self.ttft_counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{{label},le="{edge}"}} {float(total)!r}')
        lines += [f"{name}_count{{{label}}} {float(total)!r}", f"{name}_sum{{{label}}} {self.ttft_sum_s!r}"]
