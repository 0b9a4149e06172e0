"""Merges the results of a load's workers: sums of counters, joined samples, maxima of errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rackgate.loadgen.machine_clock import MachineClock
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.results.offered_load import Counters, OfferedLoad, WorkerCost
from rackgate.loadgen.results.sample_file import write_sample_file
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.loadgen.worker_process import WorkerProcess
from rackgate.nouns.load import Origin
from rackgate.nouns.measurement import Reason
from rackgate.nouns.sample import Sample
from rackgate.statistics.percentiles import nearest_rank

_Result = dict[str, Any]


def merge_results(
    plan: LoadPlan, workers: Sequence[WorkerProcess], samples_path: Path, *, in_time: bool
) -> OfferedLoad:
    """Return the result of a load whose workers have ended, and merge their spools into one sample file.

    If a worker died, the reason is `died` and the samples of the others are kept.
    """
    rows_of = [worker.finished_count() for worker in workers]
    table, kept, problem = _samples(workers, samples_path)
    lags = _lags(table, rows_of)
    if table is not None and len(workers) > 1:
        table = table.where(np.argsort(table.column("scheduled_ns"), kind="stable"))
    results = [worker.result for worker in workers]
    dead = [worker for worker, result in zip(workers, results, strict=True) if result is None]
    finished = [result for result in results if result is not None]
    counters = _counters(finished)
    rows = 0 if table is None else len(table.measured)
    reason, detail = None, ""
    if dead:
        reason, detail = Reason.DIED, _who_died(dead, len(workers))
    elif problem:
        reason, detail = Reason.DIED, problem
    elif rows != counters.scheduled:
        reason = Reason.DIED
        detail = f"{counters.scheduled} requests were scheduled but {rows} samples kept"
    elif not in_time:
        reason, detail = Reason.TIMEOUT, "the load was ended at the caller's limit"
    return OfferedLoad(
        load=plan.load,
        label=plan.label,
        engines=tuple(endpoint.entity for endpoint in plan.endpoints),
        samples=table,
        samples_path=samples_path if kept else None,
        **_moments(finished),
        peak_in_flight=_peak(finished, table),
        counters=Counters() if dead else counters,
        workers=tuple(map(_cost, workers, results, lags)),
        clocks=_clocks(workers),
        reason=reason,
        detail=detail,
    )


def _clocks(workers: Sequence[WorkerProcess]) -> tuple[MachineClock, ...]:
    """Return the clock of each load machine with the most readings that one of its workers has."""
    clocks = sorted(filter(None, (worker.clock for worker in workers)), key=lambda one: len(one.readings))
    return tuple(sorted({one.machine: one for one in clocks}.values(), key=lambda one: one.machine))


def _who_died(dead: Sequence[WorkerProcess], count: int) -> str:
    words = "; ".join(worker.failure_detail() for worker in dead)
    return words if count == 1 else f"{len(dead)} of {count} workers: {words}"


def _counters(results: Sequence[_Result]) -> Counters:
    outcomes: Counter[str] = Counter()
    for result in results:
        outcomes.update(result["outcomes"])
    return Counters(
        **{name: sum(result[name] for result in results) for name in ("scheduled", "started", "dropped")},
        outcomes=dict(outcomes),
    )


def _moments(results: Sequence[_Result]) -> Mapping[str, Any]:
    if not results:
        return {}
    lags = [lag for result in results if (lag := result["loop_lag_p99_ms"]) is not None]
    return {
        "start_ns": min(result["start_ns"] for result in results),
        "end_ns": max(result["end_ns"] for result in results),
        "steady_start_ns": min(result["steady_start_ns"] for result in results),
        "steady_end_ns": max(result["steady_end_ns"] for result in results),
        "cpu_s": sum(result["cpu_s"] for result in results),
        "loop_lag_p99_ms": max(lags, default=None),
    }


def _peak(results: Sequence[_Result], table: SampleTable | None) -> int:
    """Return the peak of requests in flight, for several workers from the moments of their samples."""
    if len(results) < 2 or table is None:
        return max((int(result["peak_in_flight"]) for result in results), default=0)
    sent, done = (np.asarray(table.column(name), dtype=float) for name in ("sent_ns", "done_ns"))
    complete = ~(np.isnan(sent) | np.isnan(done))
    sent, done = np.sort(sent[complete]), np.sort(done[complete])
    in_flight = np.arange(1, len(sent) + 1) - np.searchsorted(done, sent, side="right")
    return int(in_flight.max(initial=0))


def _lags(table: SampleTable | None, rows_of: Sequence[int]) -> list[float | None]:
    """Return each worker's P99 schedule lag; the rows of `table` are in the order of the workers."""
    found: list[float | None] = []
    first = 0
    for rows in rows_of:
        mine = (
            None if table is None else table.where(np.arange(first, min(first + rows, len(table)))).measured
        )
        lags = np.zeros(0) if mine is None else np.asarray(mine.column("schedule_lag_ms"), dtype=float)
        found.append(nearest_rank(lags[~np.isnan(lags)], 0.99))
        first += rows
    return found


def _cost(worker: WorkerProcess, result: _Result | None, lag_ms: float | None) -> WorkerCost:
    counts = result or {}
    return WorkerCost(
        worker=worker.plan.worker,
        machine="" if (clock := worker.clock) is None else clock.machine,
        scheduled=int(counts.get("scheduled", 0)),
        cpu_s=float(counts.get("cpu_s", 0.0)),
        schedule_lag_p99_ms=lag_ms,
        loop_lag_p99_ms=counts.get("loop_lag_p99_ms"),
        died=result is None,
    )


def _samples(workers: Sequence[WorkerProcess], path: Path) -> tuple[SampleTable | None, bool, str]:
    """Return the samples, whether they are in the Parquet file, and what went wrong."""
    spooled = [worker for worker in workers if worker.spool.exists()]
    if not spooled:
        return None, False, ""
    origin = workers[0].plan.load.origin
    table: SampleTable | None
    try:
        table, problem = write_sample_file(_samples_of(spooled), origin, path), ""
        for worker in spooled:
            worker.spool.unlink()
    except (OSError, ValueError, TypeError, KeyError) as error:
        table, problem = _in_memory(spooled, origin), f"the samples cannot be kept: {error!r}"
    return table, not problem, problem


def _samples_of(workers: Sequence[WorkerProcess]) -> Iterator[Sample]:
    return (sample for worker in workers for sample in worker.samples())


def _in_memory(workers: Sequence[WorkerProcess], origin: Origin) -> SampleTable | None:
    """Return samples that could not be written to a file, None if they cannot be read either."""
    try:
        return SampleTable.from_samples(list(_samples_of(workers)), origin)
    except (OSError, ValueError, TypeError, KeyError):
        return None
