"""Output of `rackgate load`: numbers with their bounds, as text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rackgate.judging.judge import judge
from rackgate.loadgen.cache_audit import CacheAudit
from rackgate.loadgen.knee import Knee, RateProbe
from rackgate.loadgen.machine_clock import MachineClock
from rackgate.loadgen.requests.trace import trace_of
from rackgate.loadgen.results.measurement_quality import measurement_quality, shared_read_share
from rackgate.loadgen.results.offered_load import OfferedLoad
from rackgate.metrics.summary import LoadNumbers
from rackgate.nouns.load import Load
from rackgate.nouns.measurement import Measurement
from rackgate.nouns.slo import Check, Op, Scope, Slo


@dataclass(frozen=True, slots=True)
class TtftError:
    """The load generator's own error of TTFT: P99 (None: not measured), its source, the accepted limit."""

    p99_ms: float | None
    source: str
    limit_ms: float

    @property
    def accepted(self) -> bool:
        """Whether it is within the limit, or was not measured."""
        return self.p99_ms is None or self.p99_ms <= self.limit_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one call; the same `seed` repeats its requests."""

    offered: OfferedLoad
    numbers: LoadNumbers
    seed: int
    interrupted: bool = False
    audit: CacheAudit | None = None

    @property
    def untrue(self) -> str:
        """The reason why the latencies of this call are not the endpoint's; "" if they are."""
        if self.audit is not None and self.audit.answers_cached:
            return "answers come from a cache: they are not the engine's"
        error_ms, limit_ms = self.numbers.error_p99_ms, self.numbers.lag_limit_ms
        if error_ms is not None and error_ms > limit_ms:
            return f"the load generator reports first tokens {error_ms:.1f} ms late (P99 of its own error)"
        return ""

    @property
    def verdicts(self) -> dict[str, tuple[str, str]]:
        """The verdict of the P99 of each bound of a request, and its detail."""
        verdicts = _bound_verdicts(self.offered.load, self.numbers)
        why = "interrupted" if self.interrupted else self.untrue
        return dict.fromkeys(verdicts, ("UNKNOWN", why)) if why else verdicts


def _bound_verdicts(load: Load, numbers: LoadNumbers) -> dict[str, tuple[str, str]]:

    verdicts: dict[str, tuple[str, str]] = {}
    for name in ("ttft", "tpot", "e2e"):
        bound = getattr(load, f"{name}_bound_ms")
        if bound is None:
            continue
        row = Slo(
            id=f"load.{name}_p99", stage="load", metric=f"{name}_ms", statistic="p99", op=Op.AT_MOST,
            bound=bound, unit="ms", scope=Scope.RACK, source="command line", load=load.name,
        )  # fmt: skip
        measured = numbers.value(f"{name}_ms", "p99")
        judged = judge(Check(slo=row, entity="rack"), measured)
        verdicts[f"{name}_p99 {row.limit}"] = (str(judged.verdict), judged.detail)
    return verdicts


def as_text(result: Result) -> str:
    """Return the numbers as a table."""
    offered, numbers = result.offered, result.numbers
    counters = offered.counters
    outcomes = ", ".join(f"{count} {name}" for name, count in counters.outcomes.items()) or "none"
    seconds = (offered.end_ns - offered.start_ns) / 1e9
    lines = [
        f"{offered.load.name}: {counters.scheduled} requests in {seconds:.1f} s: {outcomes}"
        + (f", {counters.dropped} dropped" if counters.dropped else ""),
    ]
    lines += [f"trace: {left_out}"] if (left_out := _left_out(offered.load)) else []
    if result.interrupted:
        lines.append("interrupted: what was measured until then is kept, the rest is UNKNOWN")
    if offered.reason is not None:
        lines.append(f"UNKNOWN ({offered.reason}): {offered.detail}")
    lines += ["", "the five numbers"]
    lines += [_row(statistic, measured) for statistic, measured in numbers.five]
    lines += ["", "more"]
    lines += [_row(statistic, measured) for statistic, measured in numbers.more]
    lines += ["", f"the instrument: {_instrument(numbers)}"]
    shared = None if offered.samples is None else shared_read_share(offered.samples.measured)
    lines += [f"chunks that shared a read, and its arrival: {shared:.1%}"] if shared is not None else []
    lines += [f"load machine {_clock(clock)}" for clock in offered.clocks]
    lines += [f"caches: {_caches(result)}"]
    lines += [f"the same requests again: --seed {result.seed}"]
    lines += [f"UNKNOWN: {result.untrue}"] if result.untrue else []
    verdicts = result.verdicts.items()
    lines += [f"{verdict}  {bound}{f'  ({why})' if why else ''}" for bound, (verdict, why) in verdicts]
    return "\n".join(lines) + "\n"


def _left_out(load: Load) -> str:

    trace = trace_of(load)
    return trace.left_out_reason if trace is not None else ""


def _caches(result: Result) -> str:
    if result.audit is not None:
        return result.audit.text
    counted = list(result.offered.prefix.values())
    queries = sum(one.queries for one in counted)
    if not queries:
        return "the engine tells no prefix-cache counters; answers: not audited (--audit)"
    share = sum(one.hits for one in counted) / queries
    return f"prefix hits {share:.1%}; answers: not audited (--audit)"


def _row(statistic: str, measured: Measurement) -> str:
    name = measured.metric if statistic == "value" else f"{measured.metric} {statistic}"
    if measured.value is None:
        return f"  {name:<28}UNKNOWN ({measured.reason}): {measured.detail}"
    bounds = ""
    if measured.bounds is not None:
        low, high = (_number(side) for side in (measured.bounds.lower, measured.bounds.upper))
        bounds = f"  [{low}, {high}] one-sided {measured.bounds.confidence:.0%}"
    detail = f"  {measured.detail}" if measured.detail else ""
    return f"  {name:<28}{_number(measured.value):>10} {measured.unit:<6} n={measured.count}{bounds}{detail}"


def _number(value: float | None) -> str:
    return "unresolved" if value is None else f"{value:.4g}"


def _instrument(numbers: LoadNumbers) -> str:
    lag, loop = numbers.schedule_lag_p99_ms, numbers.loop_lag_p99_ms
    said = "exact enough" if numbers.exact else "TOO LATE: the latencies are its own, not the endpoint's"
    parts = [f"sent {lag:.2f} ms late (P99)" if lag is not None else "sent nothing"]
    if loop is not None:
        parts.append(f"its loop {loop:.1f} ms late (P99)")
    error = numbers.error_detail
    if numbers.error_p99_ms is not None:
        error = f"{numbers.error_p99_ms:.2f} ms (P99, {error})"
    return f"{', '.join(parts)}; error of its TTFT {error}; {said} (accepted: {numbers.lag_limit_ms:g} ms)"


def _clock(clock: MachineClock) -> str:
    offset_ms = clock.readings[0].offset_ns / 1e6
    return (
        f"{clock.machine}: its clock {offset_ms:+.3f} ms from ours, known to {clock.uncertainty_ms:.2f} ms,"
        f" drift {clock.drift_ms:+.3f} ms"
    )


def as_json(result: Result) -> str:
    """Return the numbers as one JSON object; infinite values are the strings `inf` and `-inf`."""
    offered, numbers = result.offered, result.numbers
    text = json.dumps(
        {
            "seed": result.seed,
            "load": _plain(asdict(offered.load)),
            "counters": {
                "scheduled": offered.counters.scheduled,
                "started": offered.counters.started,
                "dropped": offered.counters.dropped,
                "outcomes": dict(offered.counters.outcomes),
                "reconciles": offered.counters.reconciles,
            },
            "duration_s": (offered.end_ns - offered.start_ns) / 1e9,
            "peak_in_flight": offered.peak_in_flight,
            "interrupted": result.interrupted,
            "reason": offered.reason,
            "detail": offered.detail,
            "origin": str(offered.load.origin),
            "five": [_measured(*number) for number in numbers.five],
            "measurements": [_measured(*number) for number in numbers.more],
            "instrument": {
                "schedule_lag_p99_ms": numbers.schedule_lag_p99_ms,
                "loop_lag_p99_ms": numbers.loop_lag_p99_ms,
                "limit_ms": numbers.lag_limit_ms,
                "exact": numbers.exact,
                "error_p99_ms": numbers.error_p99_ms,
                "error_detail": numbers.error_detail,
                "cpu_s": offered.cpu_s,
                "workers": [asdict(cost) for cost in offered.workers],
                "clocks": [asdict(clock) for clock in offered.clocks],
            },
            "reads": measurement_quality(offered.samples),
            "trace_left_out": _left_out(offered.load),
            "prefix_cache": {name: asdict(counted) for name, counted in offered.prefix.items()},
            "caches": None if result.audit is None else asdict(result.audit),
            "untrue": result.untrue,
            "bounds": {
                bound: {"verdict": verdict, "detail": why}
                for bound, (verdict, why) in result.verdicts.items()
            },
        },
        indent=2,
    )
    return text + "\n"


def _measured(statistic: str, measured: Measurement) -> Mapping[str, Any]:
    return {"statistic": statistic, **_plain(asdict(measured))}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def probe_line(probe: RateProbe) -> str:
    """Return the line of one point of the curve."""
    share = "-" if probe.share is None else f"{probe.share:.1%}"
    low, high = (_number(side) for side in (probe.bounds.lower, probe.bounds.upper))
    said = {"PASS": "meets", "FAIL": "misses"}.get(str(probe.verdict), "unresolved")
    why = f"  aborted: {probe.aborted}" if probe.aborted else ""
    return f"{probe.rate_per_s:>9.4g}/s  {share:>6} good of {probe.attempted}  [{low}, {high}]  {said}{why}\n"


def knee_text(knee: Knee, load: Load, seed: int, error: TtftError) -> str:
    """Return the result of the search."""
    bounds = ", ".join(
        f"{name.upper()} <= {bound:g} ms"
        for name in ("ttft", "tpot", "e2e")
        if (bound := getattr(load, f"{name}_bound_ms")) is not None
    )
    rate = "none" if knee.rate_per_s is None else f"{knee.rate_per_s:.4g}/s"
    beyond = "" if knee.too_high_per_s is None else f", {knee.too_high_per_s:.4g}/s is too much"
    detail = f" ({knee.detail})" if knee.detail else ""
    found = f"{knee.found}: {rate} with {knee.share:.0%} inside {bounds}{beyond}{detail}"
    return f"{found}\nthe instrument: {_error_text(error)}\nthe same requests again: --seed {seed}\n"


def _error_text(error: TtftError) -> str:
    if error.p99_ms is None:
        return f"error of its TTFT {error.source}"
    said = "exact enough" if error.accepted else "TOO INEXACT: the knee is not the endpoint's"
    return (
        f"error of its TTFT {error.p99_ms:.2f} ms (P99, {error.source}); {said}"
        f" (accepted: {error.limit_ms:g} ms)"
    )


def knee_json(knee: Knee, load: Load, seed: int, error: TtftError) -> str:
    """Return the search and its curve as one JSON object."""
    plain = {"seed": seed, "load": _plain(asdict(load)), **_plain(asdict(knee))}
    plain["instrument"] = {
        "error_p99_ms": error.p99_ms,
        "error_detail": error.source,
        "limit_ms": error.limit_ms,
    }
    plain["goodput_per_s"] = max(
        (probe.rate_per_s * (probe.share or 0.0) for probe in knee.probes if str(probe.verdict) == "PASS"),
        default=None,
    )
    return json.dumps(plain, indent=2) + "\n"
