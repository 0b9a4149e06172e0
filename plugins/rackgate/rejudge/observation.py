"""Rebuilds the observation of a stage from the records, samples and telemetry of a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from rackgate.loadgen.engine_counters import PrefixCounters, histogram_of
from rackgate.loadgen.machine_clock import MachineClock
from rackgate.loadgen.results.offered_load import Counters, OfferedLoad
from rackgate.loadgen.results.sample_file import read_samples
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.nouns.decode import decode
from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.load import Load
from rackgate.nouns.measurement import Reason
from rackgate.rejudge.finished_run import FinishedRun
from rackgate.telemetry.table import TelemetryTable

_JUDGED_ONLY = ("ttft_bound_ms", "tpot_bound_ms", "e2e_bound_ms")
"""Fields of a load that concern judging, not what is offered."""

_NOT_OFFERED = (*_JUDGED_ONLY, "workers")

_LOOK = ("start_ns", "end_ns", "steady_start_ns", "steady_end_ns", "peak_in_flight", "cpu_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadDifferences:
    """The differences between a load that ran and the same load in the acceptance file."""

    load: str
    text: str


def load_differences(name: str, offered: Load | None, agreed: Load | None) -> LoadDifferences | None:
    """Return the differences between the load that ran and the load in the acceptance file; None if equal."""
    if offered is None or agreed is None:
        text = f"the run knew no load '{name}'" if offered is None else f"no load '{name}' is agreed"
        return LoadDifferences(load=name, text=text)
    parts = [
        f"{field.name} {_shown(getattr(offered, field.name))}, not {_shown(getattr(agreed, field.name))}"
        for field in fields(Load)
        if field.name not in _NOT_OFFERED and getattr(offered, field.name) != getattr(agreed, field.name)
    ]
    if not parts:
        return None
    return LoadDifferences(load=name, text=f"the run offered load '{name}' otherwise: {'; '.join(parts)}")


def _shown(value: object) -> str:
    return "none" if value is None else f"{value}"[:60]


def rebuild_observation(
    finished: FinishedRun,
    stage: str,
    *,
    loads: Mapping[str, Load],
    excluded: frozenset[str],
    lag_limit_ms: float,
    profile: str,
) -> Observation:
    """Return the observation of a stage; `loads` and `profile` are those of the acceptance file."""
    load_runs = _load_runs(finished, stage, loads)
    looks = [look for load_run in load_runs for look in load_run.looks if look.end_ns]
    interval_s, seen_ns = _sampled(finished, stage)
    telemetry = None
    if looks:
        start, end = min(look.start_ns for look in looks), max(look.end_ns for look in looks)
        telemetry = _telemetry(finished, start, end, interval_s, seen_ns)
    return Observation(
        stage=stage,
        target=finished.target,
        load_runs=load_runs,
        telemetry=telemetry,
        faults=_faults(finished, stage),
        excluded=excluded,
        lag_limit_ms=lag_limit_ms,
        sample_gap_s=max(1.5, 4 * interval_s),
        profile=profile,
    )


def _load_runs(finished: FinishedRun, stage: str, loads: Mapping[str, Load]) -> tuple[LoadRun, ...]:
    """Return the load runs in order; each begins with look 0."""
    load_runs: list[LoadRun] = []
    for record in finished.of("load"):
        if record["stage"] != stage:
            continue
        look = _look(finished, record, loads)
        if record["look"] == 0 or not load_runs:
            load_runs.append(LoadRun(load=record["load"], label=record["label"], looks=(look,)))
        else:
            load_runs[-1] = replace(load_runs[-1], looks=(*load_runs[-1].looks, look))
    return tuple(load_runs)


def _look(finished: FinishedRun, record: Mapping[str, Any], loads: Mapping[str, Load]) -> OfferedLoad:
    load = finished.loads[record["load"]]
    agreed = loads.get(load.name, load)
    load = replace(load, **{name: getattr(agreed, name) for name in _JUDGED_ONLY})
    reason = Reason(record["reason"]) if record["reason"] else None
    detail, samples = str(record["detail"] or ""), None
    path = finished.folder / "evidence" / record["samples"] if record["samples"] else None
    if path is not None:
        try:
            samples = read_samples(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason, detail = reason or Reason.DIED, f"{record['samples']} cannot be read: {error}"
    elif reason is None:
        reason, detail = Reason.DIED, "the load left no file of samples"
    return OfferedLoad(
        load=load,
        label=record["label"],
        engines=tuple(record["engines"]),
        **{name: record[name] for name in _LOOK},
        counters=decode(Counters, record["counters"]),
        samples=samples,
        samples_path=path,
        loop_lag_p99_ms=record["loop_lag_p99_ms"],
        clocks=tuple(decode(MachineClock, clock) for clock in record.get("clocks") or ()),
        prefix={
            engine: decode(PrefixCounters, counted)
            for engine, counted in (record.get("prefix_cache") or {}).items()
        },
        server_ttft={
            engine: histogram_of(counted) for engine, counted in (record.get("server_ttft") or {}).items()
        },
        reason=reason,
        detail=detail,
    )


def _sampled(finished: FinishedRun, stage: str) -> tuple[float, int | None]:
    """Return the seconds between two samples of a signal and until when the stage had seen them."""
    said = [
        record
        for record in finished.of("event")
        if record.get("event") == "observed" and record.get("stage") == stage
    ]
    return (float(said[-1]["sample_interval_s"]), said[-1].get("telemetry_seen_ns")) if said else (1.0, None)


def _telemetry(
    finished: FinishedRun, start: int, end: int, interval_s: float, seen_ns: int | None
) -> TelemetryTable | None:
    import pyarrow as pa

    from rackgate.rejudge.telemetry import telemetry_window

    folder = finished.folder / "evidence" / "telemetry.parquet"
    try:
        return telemetry_window(folder, start, end, interval_s, seen_ns)
    except (OSError, pa.ArrowException, ValueError):
        return None  # what rests on it is UNKNOWN: no telemetry in this run


def _faults(finished: FinishedRun, stage: str) -> tuple[FaultTimeline, ...]:
    return tuple(
        decode(FaultTimeline, record["timeline"])
        for record in finished.of("event")
        if record.get("event") == "fault_timeline" and record.get("stage") == stage
    )
