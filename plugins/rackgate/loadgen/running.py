"""Starts the workers of a load and collects their results."""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from rackgate.loadgen.remote.relay import Relay
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.requests.trace import Trace, trace_of
from rackgate.loadgen.requests.words import words_of
from rackgate.loadgen.results.offered_load import OfferedLoad
from rackgate.loadgen.sizing import worker_count
from rackgate.loadgen.worker.instrument_faults import WORKER_FAULTS
from rackgate.loadgen.worker.live_state import LiveState
from rackgate.loadgen.worker.spool import sample_of_line
from rackgate.loadgen.worker_process import WorkerProcess, remove_old_files
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Arrival, Load
from rackgate.nouns.sample import Sample
from rackgate.nouns.target import LoadMachines

_GRACE_S = 3.0
_MAX_RECENT = 2000
_MAX_SELECT_S = 3600.0
"""The kernel counts a wait in milliseconds with 31 bits, and a load may be longer."""


def start_load(
    load: Load,
    endpoints: Sequence[Endpoint],
    *,
    label: str,
    samples_path: Path,
    seed: int,
    look: int = 0,
    requests: int | None = None,
    warmup: bool = True,
    instrument_fault: str = "",
    machines: LoadMachines | None = None,
) -> RunningLoad:
    """Start the worker processes that run `load` against all endpoints at once, here or on load machines.

    A closed load keeps `load.concurrency` requests in flight per endpoint until `requests` (default: the last
    look) have run on each, or `load.duration_s` is over. An open load offers its rate to each endpoint until
    its duration is over or `requests` were offered.
    `instrument_fault` is injected into the last worker: `slow`, `die` or `late`.
    Raises `ValueError` for an invalid load, for a load without an end or without endpoints, and its subclass
    `NoLoadMachines` if the load machines cannot be used.
    """
    if instrument_fault not in WORKER_FAULTS:
        raise ValueError(f"unknown instrument_fault {instrument_fault!r}")
    trace = check_load(load)
    planned, span_s = _extent(load, trace, requests)
    if not endpoints:
        raise ValueError(f"load {load.name!r} has no endpoint to go to")
    samples_path.parent.mkdir(parents=True, exist_ok=True)
    workers, relay = worker_count(load, len(endpoints)), None
    if machines is not None:
        relay = Relay(machines, endpoints)
        workers = worker_count(load, len(endpoints), cores=relay.cores, per_machine=machines.workers)
    plan = LoadPlan(
        load=load,
        endpoints=tuple(replace(one, protocol=load.protocol or one.protocol) for one in endpoints),
        label=label,
        spool=str(samples_path.with_name(f"{samples_path.name}.jsonl")),
        seed=seed,
        look=look,
        requests=planned,
        warmup=warmup,
        instrument_fault=instrument_fault,
        span_s=span_s,
        workers=workers,
        start_file=str(samples_path.with_name(f"{samples_path.name}.start_file")),
    )
    return RunningLoad(plan, samples_path, relay)


def check_load(load: Load) -> Trace | None:
    """Return the trace of a load, if it has one. Raises `ValueError` with all problems of the load."""
    problems = load.problems
    if problems:
        raise ValueError("\n".join(f"load {load.name!r}: {problem}" for problem in problems))
    if load.tokenizer is not None:
        words_of(load.tokenizer)
    return trace_of(load)


def _extent(load: Load, trace: Trace | None, requests: int | None) -> tuple[int | None, float]:
    """Return the requests per endpoint, None if only time decides, and the span of their starts in s.

    Raises `ValueError` if the load has neither.
    """
    planned = load.planned_requests or None
    if requests is not None:
        planned = min(requests, planned) if load.open and planned is not None else requests
    span_s = load.duration_s or sum((phase.duration_s for phase in load.phases), 0.0)
    span_s = span_s or max(load.arrivals_s, default=0.0) / load.trace_speed
    if trace is not None:
        planned = _trace_requests(trace, load, planned)
        if load.arrival is Arrival.TRACE:
            span_s = (trace.moments_s[planned - 1] - trace.moments_s[0]) / load.trace_speed
    if planned is None and (load.open or load.duration_s is None):
        raise ValueError(f"load {load.name!r} says neither how many requests nor for how long")
    return planned, span_s


def _trace_requests(trace: Trace, load: Load, planned: int | None) -> int:
    """Return the number of a trace's requests that are offered. Raises `ValueError` if it has too few."""
    held = len(trace.requests)
    in_time = trace.in_time(load)
    if planned is not None and planned > held:
        text = f"{planned} requests are planned, {load.trace} holds {held}; to repeat one hits every cache"
        raise ValueError(f"load {load.name!r}: {text}")
    return in_time if planned is None else min(planned, in_time)


class RunningLoad:
    """A load that runs in worker processes, with a `relay` on load machines; leaving the context ends it."""

    def __init__(self, plan: LoadPlan, samples_path: Path, relay: Relay | None = None) -> None:
        self._plan = plan
        self._samples_path = samples_path
        self._result: OfferedLoad | None = None
        Path(plan.start_file).unlink(missing_ok=True)
        plans = [_of_worker(plan, number) for number in range(plan.workers)]
        for one in plans:
            remove_old_files(Path(one.spool))
        links = [None] * len(plans) if relay is None else relay.start(plans)
        self._workers = [WorkerProcess(*one) for one in zip(plans, links, strict=True)]

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The process ids of the workers."""
        return tuple(worker.process_id for worker in self._workers)

    @property
    def running(self) -> bool:
        """True while a worker exists."""
        return any(worker.running for worker in self._workers)

    @property
    def finished_count(self) -> int:
        """The number of finished requests so far, including warm-up and dropped ones."""
        if self._result is not None:
            return 0 if self._result.samples is None else len(self._result.samples)
        return sum(worker.finished_count() for worker in self._workers)

    @property
    def live_state(self) -> LiveState | None:
        """The sum of the workers' live states, None before every worker has written one."""
        states = [state for worker in self._workers if (state := worker.live_state) is not None]
        if len(states) < len(self._workers):
            return None
        begun = all(state.start_ns for state in states)
        return LiveState(
            t_ns=max(state.t_ns for state in states),
            start_ns=min(state.start_ns for state in states) if begun else 0,
            scheduled=sum(state.scheduled for state in states),
            started=sum(state.started for state in states),
            dropped=sum(state.dropped for state in states),
            in_flight=sum(state.in_flight for state in states),
            share_done=min(state.share_done for state in states),
        )

    def recent(self) -> list[Sample]:
        """Return the requests that finished since the last call, at most 2,000 of each worker."""
        lines = [line for worker in self._workers for line in worker.recent()[-_MAX_RECENT:]]
        return [sample_of_line(line) for line in lines]

    def wait(self, limit_s: float) -> bool:
        """Wait for at most `limit_s` and return whether the load has ended."""
        return self._result is not None or self._await_results(limit_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._result is None:
            self._end(0.5 if kind else _GRACE_S)
        self._remove_files()

    def cancel(self) -> None:
        """Let the workers end the load; `finish` then returns what was measured."""
        for worker in self._workers:
            worker.send(b"cancel\n")

    def finish(self, timeout_s: float | None = None) -> OfferedLoad:
        """Wait for the load's end and return its result; failures of rack and workers are its `reason`.

        After `timeout_s` the load is cancelled and its reason is `timeout`.
        """
        if self._result is None:
            from rackgate.loadgen.merging import merge_results

            in_time = self._await_results(self._plan.max_duration_s if timeout_s is None else timeout_s)
            if not in_time:
                self.cancel()
                self._await_results(self._plan.load.limits.connect_s + _GRACE_S)
            self._end(_GRACE_S)
            self._result = merge_results(self._plan, self._workers, self._samples_path, in_time=in_time)
            self._remove_files()
        return self._result

    def _await_results(self, limit_s: float) -> bool:
        """Read from the workers until all have ended; False if one still runs after `limit_s`.

        A worker that ends without a result ends the load, because the rest would be a smaller load.
        """
        deadline = monotonic() + limit_s
        while unfinished := {worker.output: worker for worker in self._workers if worker.output is not None}:
            with selectors.DefaultSelector() as selector:
                for output in unfinished:
                    selector.register(output, selectors.EVENT_READ)
                ready = selector.select(min(max(0.0, deadline - monotonic()), _MAX_SELECT_S))
            if not ready and monotonic() >= deadline:
                return False
            for key, _ in ready:
                worker = unfinished[key.fd]
                worker.read()
                if worker.output is None and worker.result is None:
                    self.cancel()
        return True

    def _end(self, grace_s: float) -> None:
        deadline = monotonic() + grace_s
        for worker in self._workers:
            worker.end(max(0.1, deadline - monotonic()))

    def _remove_files(self) -> None:
        Path(self._plan.start_file).unlink(missing_ok=True)
        for worker in self._workers:
            worker.remove_state_files()


def _of_worker(plan: LoadPlan, number: int) -> LoadPlan:
    """Return the plan of one worker; only the last worker has the instrument fault."""
    last = number == plan.workers - 1
    spool = plan.spool if plan.workers == 1 else f"{plan.spool}.{number}"
    return replace(plan, worker=number, spool=spool, instrument_fault=plan.instrument_fault if last else "")
