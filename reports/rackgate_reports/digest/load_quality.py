"""How well each load was offered and measured: the load generator, its machines, the engines' caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rackgate_reports.digest.provenance import Table
from rackgate_reports.evidence import RunEvidence, mapping, mappings, number_of
from rackgate_reports.formatting import plural

_MOST_LOADS = 200
_SERVER_PERCENTILE = 0.95


def load_tables(run: RunEvidence) -> tuple[Table, Table]:
    """Return the loads, and the clocks of load machines other than this machine."""
    return _loads(run), _load_machine_clocks(run)


def _loads(run: RunEvidence) -> Table:
    columns = {
        "Stage": lambda load: load.get("stage"),
        "Load": _name,
        "Look": _look,
        "Requests": lambda load: mapping(load.get("counters")).get("scheduled"),
        "Errors and drops": _errors_and_drops,
        "Loop lag P99": _loop_lag,
        "Chunks that shared a read": _shared_reads,
        "Connections opened on the way": _connections_opened,
        "Workers": _workers,
        "From prefix caches": _prefix_cache_hits,
        "TTFT P95 by the engines": _server_ttft,
    }
    loads = run.of("load")
    return Table(
        title="Loads",
        heads=tuple(columns),
        rows=tuple(tuple(text(load) for text in columns.values()) for load in loads[:_MOST_LOADS]),
        total=len(loads),
    )


def _load_machine_clocks(run: RunEvidence) -> Table:
    rows = tuple(
        (
            load.get("stage"),
            _name(load),
            clock.get("machine"),
            f"{_ms(readings[0].get('offset_ns')):+.3f} ms",
            f"{max(_ms(reading.get('uncertainty_ns')) for reading in readings):.3f} ms",
            f"{_ms(readings[-1].get('offset_ns')) - _ms(readings[0].get('offset_ns')):+.3f} ms",
        )
        for load in run.of("load")
        for clock in mappings(load.get("clocks"))
        if (readings := mappings(clock.get("readings")))
    )
    heads = ("Stage", "Load", "Load machine", "Clock against this one", "Known to", "Drift")
    return Table(title="Load machines", heads=heads, rows=rows[:_MOST_LOADS], total=len(rows))


def _ms(value_ns: object) -> float:
    return (number_of(value_ns) or 0.0) / 1e6


def _name(load: Mapping[str, Any]) -> str:
    return f"{load.get('load')} ({load.get('label')})"


def _look(load: Mapping[str, Any]) -> str:
    return f"{(number_of(load.get('look')) or 0) + 1:g} of at most {number_of(load.get('looks')) or 1:g}"


def _errors_and_drops(load: Mapping[str, Any]) -> str:
    counters = mapping(load.get("counters"))
    outcomes = {**mapping(counters.get("outcomes")), "dropped": counters.get("dropped")}
    return (
        ", ".join(f"{count} {name}" for name, count in outcomes.items() if count and name != "ok") or "none"
    )


def _loop_lag(load: Mapping[str, Any]) -> str:
    lag_ms = number_of(load.get("loop_lag_p99_ms"))
    return "not read" if lag_ms is None else f"{lag_ms:g} ms"


def _shared_reads(load: Mapping[str, Any]) -> str:
    """Return the share of chunks that came in one read with another chunk and have its arrival time."""
    chunks, shared = number_of(load.get("chunks")), number_of(load.get("shared_chunks"))
    if not chunks or shared is None:
        return "not recorded" if chunks is None else "no chunk"
    return f"{shared / chunks:.1%} of {chunks:,.0f}"


def _connections_opened(load: Mapping[str, Any]) -> str:
    """Return how many requests waited for a new connection, and how long."""
    opened, wait_ms = number_of(load.get("opened")), number_of(load.get("connect_p99_ms"))
    if not opened:
        return "not recorded" if opened is None else "none"
    return f"{opened:g}" if wait_ms is None else f"{opened:g}, P99 {wait_ms:.3g} ms"


def _workers(load: Mapping[str, Any]) -> str:
    """Return the count of worker processes, with the CPU time and the P99 schedule lag of each."""
    parts = []
    for worker in mappings(load.get("workers")):
        lag_ms = number_of(worker.get("schedule_lag_p99_ms"))
        late = "" if lag_ms is None else f", {lag_ms:.2g} ms late"
        parts.append(f"{number_of(worker.get('cpu_s')) or 0.0:.2g} s CPU{late}")
    return f"{len(parts)}: {'; '.join(parts)}" if parts else "not recorded"


def _prefix_cache_hits(load: Mapping[str, Any]) -> str:
    """Return the share of the prompt tokens looked up that was found, over all engines that count them."""
    engines = [mapping(engine) for engine in mapping(load.get("prefix_cache")).values()]
    queries = sum(number_of(engine.get("queries")) or 0.0 for engine in engines)
    hits = sum(number_of(engine.get("hits")) or 0.0 for engine in engines)
    if not engines:
        return "no engine told"
    share = f"{hits / queries:.1%} of {queries:,.0f} tokens" if queries else "nothing looked up"
    return f"{share} ({plural(len(engines), 'engine')})"


def _server_ttft(load: Mapping[str, Any]) -> str:
    """Return the histogram bucket that holds the P95 of the slowest engine."""
    buckets = [_p95_bucket(mapping(histogram)) for histogram in mapping(load.get("server_ttft")).values()]
    known = [bucket for bucket in buckets if bucket is not None]
    if not known:
        return "no engine told"
    low_s, high_s = max(known)
    return f"{low_s * 1e3:g} to {high_s * 1e3:g} ms at most ({plural(len(known), 'engine')})"


def _p95_bucket(histogram: Mapping[str, Any]) -> tuple[float, float] | None:
    edges = [number_of(edge) for edge in histogram.get("edges_s") or ()]
    counts = [number_of(count) or 0.0 for count in histogram.get("counts") or ()]
    if not counts or len(counts) != len(edges) or counts[-1] <= 0:
        return None
    place = next(i for i, count in enumerate(counts) if count >= _SERVER_PERCENTILE * counts[-1])
    low, high = (edges[place - 1] if place else 0.0), edges[place]
    return None if low is None or high is None else (low, high)
