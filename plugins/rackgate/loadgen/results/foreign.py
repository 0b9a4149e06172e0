"""Results of other load generators, converted to our measurements where the definitions agree.

It reads AIPerf's `profile_export_aiperf.json`, GuideLLM's JSON report and `vllm bench serve --save-result`.
None of them counts a stream that ends without its terminal signal as a failure, and their percentiles leave
failures out; a measurement that depends on this is UNKNOWN with the reason.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackgate.nouns.measurement import Bounds, Measurement, Reason, missing
from rackgate.statistics.percentiles import nearest_rank, order_ranks, percentile_bounds


class ForeignError(ValueError):
    """A file that is not the result of a known load generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A tool's distribution of one latency in ms: values by quantile (0 is the minimum, 1 the maximum).

    If the file has the value of every request, `values` holds them and the statistics are ours, by nearest
    rank.
    """

    quantiles: Mapping[float, float]
    count: int
    mean: float | None = None
    values: tuple[float, ...] = ()

    def value(self, quantile: float) -> float | None:
        """Return a quantile, None if the file does not have it."""
        if self.values:
            return nearest_rank(self.values, quantile)
        return self.quantiles.get(quantile)

    def bounds(self, quantile: float, confidence: float = 0.95) -> Bounds:
        """Return confidence bounds from the reported quantiles around it, None if no quantile is far enough.

        The order statistic that bounds a percentile is itself bounded by a reported percentile beyond it.
        """
        if self.values:
            return percentile_bounds(self.values, quantile, confidence)
        low, high = order_ranks(self.count, quantile, confidence)
        last = self.count - 1
        told = self.quantiles.items()
        lower = [v for q, v in told if low is not None and math.ceil(last * q) + 1 <= low]
        upper = [v for q, v in told if high is not None and math.floor(last * q) + 1 >= high]
        return Bounds(lower=max(lower, default=None), upper=min(upper, default=None), confidence=confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignReport:
    """One result file: counts, latencies and rates by our metric names, and why others are missing."""

    tool: str
    ok: int
    failed: int | None
    latencies: Mapping[str, Distribution] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    incomparable: Mapping[str, str] = field(default_factory=dict)
    partial: str = ""

    def measurement(self, metric: str, statistic: str, unit: str) -> Measurement:
        """Return a measurement, which has a reason if the file does not support it."""
        if self.partial:
            return missing(metric, "rack", unit, Reason.DIED, f"{self.tool}: {self.partial}")
        if metric in self.incomparable:
            text = f"{self.tool}: {self.incomparable[metric]}"
            return missing(metric, "rack", unit, Reason.UNSUPPORTED, text)
        if metric == "error_rate":
            return self._error_rate(unit)
        if metric in self.values:
            return self._measured(metric, unit, self.values[metric], self.ok)
        found = self.latencies.get(metric)
        if found is None:
            return missing(metric, "rack", unit, Reason.ABSENT, f"{self.tool}'s file does not hold it")
        return self._percentile(metric, statistic, unit, found)

    def _percentile(self, metric: str, statistic: str, unit: str, found: Distribution) -> Measurement:
        if self.failed is None:
            text = f"{self.tool} does not say how many requests failed"
            return missing(metric, "rack", unit, Reason.ABSENT, text)
        if self.failed:
            text = f"its percentiles leave the {self.failed} failed requests out, which count as infinite"
            return missing(metric, "rack", unit, Reason.UNSUPPORTED, f"{self.tool}: {text}")
        if statistic == "mean" and found.mean is not None:
            return self._measured(metric, unit, found.mean, found.count)
        quantile = {"max": 1.0}.get(statistic)
        if statistic[:1] == "p" and statistic[1:].isdigit():
            quantile = float(f"0.{statistic[1:]}")
        value = found.value(quantile) if quantile is not None else None
        if value is None or quantile is None:
            return missing(
                metric, "rack", unit, Reason.ABSENT, f"{self.tool}'s file has no {statistic} of it"
            )
        bounds = found.bounds(quantile) if quantile < 1 else None
        return self._measured(metric, unit, value, found.count, bounds)

    def _error_rate(self, unit: str) -> Measurement:
        if self.failed is None or not self.ok + self.failed:
            text = f"{self.tool} does not say how many requests failed"
            return missing("error_rate", "rack", unit, Reason.ABSENT, text)
        return self._measured(
            "error_rate", unit, self.failed / (self.ok + self.failed), self.ok + self.failed
        )

    def _measured(
        self, metric: str, unit: str, value: float, count: int, bounds: Bounds | None = None
    ) -> Measurement:
        return Measurement(
            metric=metric, entity="rack", value=value, unit=unit, count=count, bounds=bounds, source=self.tool
        )


def read_foreign(path: Path) -> ForeignReport:
    """Return the report of a result file; its keys identify the tool. Raises `ForeignError`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ForeignError(f"{path}: cannot be read: {error}") from error
    readers = (("aiperf_version", _aiperf), ("benchmarks", _guidellm), ("request_throughput", _vllm))
    for key, reader in readers:
        if isinstance(data, dict) and key in data:
            try:
                return reader(data)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                raise ForeignError(f"{path}: not as {reader.__name__[1:]} writes it: {error!r}") from error
    raise ForeignError(f"{path}: of no known load generator (AIPerf, GuideLLM, vllm bench serve)")


def _aiperf(data: dict[str, Any]) -> ForeignReport:
    names = {"ttft_ms": "time_to_first_token", "tpot_ms": "inter_token_latency", "e2e_ms": "request_latency"}
    latencies = {}
    for ours, theirs in names.items():
        told = data.get(theirs)
        if told and told.get("unit") == "ms":
            quantiles = {float(f"0.{name[1:]:0>2}"): v for name, v in told.items() if name[1:].isdigit()}
            quantiles |= {0.0: told["min"], 1.0: told["max"]}
            latencies[ours] = Distribution(
                quantiles=quantiles, count=int(told["count"]), mean=told.get("avg")
            )
    ok = int(data["request_count"]["avg"])
    share = (data.get("request_error_rate") or {}).get("avg")
    failed = data.get("error_request_count")
    count = int(failed["avg"]) if failed else None
    if count is None and share is not None and share < 100:
        count = round(ok * share / (100 - share))
    caveat = _aiperf_start_caveat(data.get("input_config"))
    whole = data.get("is_complete", True) and not data.get("was_cancelled")
    return ForeignReport(
        tool="AIPerf",
        ok=ok,
        failed=count,
        latencies=latencies,
        values=_rates(data, ("output_token_throughput", "request_throughput"), "avg"),
        incomparable=dict.fromkeys(("ttft_ms", "jitter_ratio", "e2e_ms"), caveat) if caveat else {},
        partial="" if whole else "it is not complete",
    )


def _aiperf_start_caveat(config: Mapping[str, Any] | None) -> str:
    """Return why latencies do not count from the schedule, empty if the load had none.

    With a rate AIPerf skips an arrival without a free slot, and counts each request from its sending.
    """
    if not config:
        return "its file does not say by what its requests were started (input_config)"
    phases = [one for one in config.get("phases") or () if one.get("kind") == "profiling"]
    of_old = {**(config.get("loadgen") or {}), **(config.get("input") or {})}
    rate = any(one.get("rate") for one in phases) or of_old.get("request_rate")
    other = any(one.get("type") not in ("concurrency", "concurrency_burst") for one in phases)
    if rate or other or of_old.get("fixed_schedule"):
        return "it counts from sending, and this load had a rate or a schedule, of which it may skip arrivals"
    return ""


def _rates(data: dict[str, Any], names: Iterable[str], key: str) -> dict[str, float]:
    return {name: float(data[name][key]) for name in names if data.get(name)}


def _guidellm(data: dict[str, Any]) -> ForeignReport:
    if len(data["benchmarks"]) != 1:
        raise ValueError(f"{len(data['benchmarks'])} benchmarks in one file; judge one at a time")
    (one,) = data["benchmarks"]
    metrics = one["metrics"]
    totals = metrics.get("request_totals") or one["request_totals"]
    ok = int(totals["successful"])
    strategy = ((one.get("config") or {}).get("strategy") or {}).get("type_")
    by_schedule = strategy in ("constant", "poisson", "trace")
    each = (one.get("requests") or {}).get("successful") or []
    if each and len(each) == ok:
        latencies, incomparable = _guidellm_requests(each, by_schedule=by_schedule), {}
    else:
        latencies, incomparable = _guidellm_percentiles(metrics), {"tpot_ms": _BY_TOKENS}
        caveat = "it counts from sending, and this load had a schedule" if by_schedule else ""
        incomparable |= dict.fromkeys(("ttft_ms", "jitter_ratio", "e2e_ms"), caveat) if caveat else {}
    rate = (metrics.get("output_tokens_per_second") or {}).get("successful")
    return ForeignReport(
        tool="GuideLLM",
        ok=ok,
        failed=int(totals["errored"]),
        latencies=latencies,
        values={"output_token_throughput": float(rate["mean"])} if rate else {},
        incomparable=incomparable,
    )


_BY_TOKENS = "its percentiles of TPOT are over tokens, not over requests"


def _guidellm_requests(each: list[dict[str, Any]], *, by_schedule: bool) -> dict[str, Distribution]:
    """Return latencies from each request, counted from the schedule if the load had one."""
    waited = [1000.0 * float(one["request_dispatch_delay"] or 0.0) if by_schedule else 0.0 for one in each]
    columns = {
        "ttft_ms": [
            None if one["time_to_first_token_ms"] is None else one["time_to_first_token_ms"] + wait
            for one, wait in zip(each, waited, strict=True)
        ],
        "tpot_ms": [one["inter_token_latency_ms"] for one in each],
        "e2e_ms": [1000.0 * one["request_latency"] + wait for one, wait in zip(each, waited, strict=True)],
    }
    found = {}
    for name, values in columns.items():
        known = tuple(float(value) for value in values if value is not None)
        if len(known) == len(each):
            found[name] = Distribution(
                quantiles={}, count=len(known), mean=sum(known) / len(known), values=known
            )
    return found


def _guidellm_percentiles(metrics: dict[str, Any]) -> dict[str, Distribution]:
    """Return the latencies whose percentiles are over requests."""
    found = {}
    for ours, theirs, scale in (
        ("ttft_ms", "time_to_first_token_ms", 1.0),
        ("e2e_ms", "request_latency", 1000.0),  # this one is in seconds
    ):
        told = (metrics.get(theirs) or {}).get("successful")
        if told:
            quantiles = {float(f"0.{name[1:]}"): v * scale for name, v in told["percentiles"].items()}
            quantiles |= {0.0: told["min"] * scale, 1.0: told["max"] * scale}
            found[ours] = Distribution(
                quantiles=quantiles, count=int(told["count"]), mean=told["mean"] * scale
            )
    return found


def _vllm(data: dict[str, Any]) -> ForeignReport:
    role = "its TTFT ends at the first chunk, even one that holds only a role"
    count, failed = int(data["completed"]), data.get("failed")
    if failed is None and "num_prompts" in data:
        failed = int(data["num_prompts"]) - count
    incomparable = {"ttft_ms": role, "tpot_ms": f"{role}, and TPOT counts from there", "jitter_ratio": role}
    if data.get("max_concurrency") is not None and data.get("request_rate", "inf") != "inf":
        incomparable["e2e_ms"] = "it counts from sending, and what waited for a free place was sent late"
    return ForeignReport(
        tool="vllm bench serve",
        ok=count,
        failed=failed,
        latencies=_vllm_latencies(data, count),
        values={
            "output_token_throughput": float(data["output_throughput"]),
            "request_throughput": float(data["request_throughput"]),
        },
        incomparable=incomparable,
    )


def _vllm_latencies(data: dict[str, Any], count: int) -> dict[str, Distribution]:
    """Return the end-to-end latencies: all of them (in s) if all requests were ok, else the percentiles."""
    each = tuple(1000.0 * float(one) for one in data.get("latencies") or ())
    matches = {name: re.fullmatch(r"p(\d+(?:\.\d+)?)_e2el_ms", name) for name in data}
    told = {round(float(found[1]) / 100, 6): float(data[name]) for name, found in matches.items() if found}
    if len(each) != count or data.get("failed") != 0:
        each = ()
    if not (told or each):
        return {}
    return {"e2e_ms": Distribution(quantiles=told, count=count, mean=data.get("mean_e2el_ms"), values=each)}
