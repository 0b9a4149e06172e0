"""The part of a load that runs on one load machine, driven from the relay process."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from rackgate.loadgen.machine_clock import MachineClock, clock_path, measure_clock_offset, write_clock
from rackgate.loadgen.remote.load_machine import MAX_SPOOL_BYTES, WorkerUpdate
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.worker.live_state import LiveState, live_state_path, write_live_state
from rackgate.loadgen.worker.start_barrier import START_DELAY_NS

_ROUND_TRIPS = 32
"""Round trips of one clock reading."""

_READ_CLOCK_EVERY_S = 60.0
_POLL_BEFORE_START_S = 0.02
_POLL_S = 0.2
_START_AHEAD_NS = 300_000_000
"""The time from the readiness of all workers to the start, in which each machine learns the start."""


class StartAgreement:
    """The common start of the workers of all machines, shared by the machines' threads."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._lock = threading.Lock()
        self._ready: dict[str, int] = {}
        self._moment_ns: int | None = None

    def moment_ns(self, machine: str, ready: int) -> int | None:
        """Return the start, None until every machine has reported all of its workers as ready."""
        with self._lock:
            self._ready[machine] = ready
            if self._moment_ns is None and sum(self._ready.values()) == self.workers:
                self._moment_ns = perf_counter_ns() + _START_AHEAD_NS
            return self._moment_ns


class MachineLoad:
    """One machine's part of a load: `workers` maps numbers to plans and to the descriptors for their results.

    `call(method, ...)` calls the machine's `LoadMachine` and raises `ConnectionError` when it is lost.
    """

    def __init__(
        self,
        machine: str,
        call: Callable[..., Any],
        start: StartAgreement,
        cancelled: threading.Event,
        workers: Mapping[int, tuple[LoadPlan, int]],
    ) -> None:
        self._machine = machine
        self._call = call
        self._start = start
        self._cancelled = cancelled
        self._plans = {number: plan for number, (plan, _) in workers.items()}
        self._outputs = {number: output for number, (_, output) in workers.items()}
        self._clock = MachineClock(machine=machine, readings=())

    def run(self) -> None:
        """Run to the end; what a lost machine had measured is kept."""
        try:
            if self._plans:
                self._drive()
            self._call("close")
        except OSError as error:
            for number in list(self._outputs):
                self._write_result(number, {"died": str(error)})

    def _drive(self) -> None:
        self._read_clock()
        self._call("start", [plan.to_json() for plan in self._plans.values()], self._files())
        read_at, cancel_sent, begun = time.monotonic(), False, self._start.workers == 1
        while self._outputs:
            if self._cancelled.is_set() and not cancel_sent:
                self._call("cancel")
                cancel_sent = True
            begun = begun or self._begin()
            updates: list[WorkerUpdate] = self._call("poll")
            for one in updates:
                self._store(one)
            ended = [one for one in updates if one.ended]
            if ended or time.monotonic() - read_at > _READ_CLOCK_EVERY_S:
                self._read_clock()
                read_at = time.monotonic()
            for one in ended:
                self._write_result(one.worker, {"died": one.died} if one.result is None else one.result)
            if not any(len(one.lines) == MAX_SPOOL_BYTES for one in updates):
                self._rest(_POLL_S if begun else _POLL_BEFORE_START_S, cancelled=cancel_sent)

    def _begin(self) -> bool:
        """Send the start to the machine's workers once it is known, and return whether that was done."""
        moment_ns = self._start.moment_ns(self._machine, len(self._call("ready")))
        if moment_ns is None:
            return False
        start_there_ns = moment_ns + self._clock.readings[-1].offset_ns
        self._call("begin", start_there_ns - START_DELAY_NS, self._start.workers - len(self._plans))
        return True

    def _rest(self, seconds: float, *, cancelled: bool) -> None:
        if cancelled:
            time.sleep(seconds)
        else:
            self._cancelled.wait(seconds)

    def _files(self) -> dict[str, bytes]:
        """Return the contents of the files that the load reads, by local path; never a private key."""
        plan = next(iter(self._plans.values()))
        authorities = (endpoint.route.ca_file for endpoint in plan.endpoints)
        named = (plan.load.trace, plan.load.tokenizer, *authorities)
        files = {name: Path(name) for name in named if name is not None}
        return {
            name: (path / "tokenizer.json" if path.is_dir() else path).read_bytes()
            for name, path in files.items()
        }

    def _read_clock(self) -> None:
        reading = measure_clock_offset(lambda: int(self._call("clock")), _ROUND_TRIPS)
        self._clock = replace(self._clock, readings=(*self._clock.readings, reading))
        for plan in self._plans.values():
            write_clock(clock_path(Path(plan.spool)), self._clock)

    def _store(self, update: WorkerUpdate) -> None:
        spool = Path(self._plans[update.worker].spool)
        if update.lines:
            with spool.open("ab") as file:
                file.write(update.lines)
        if update.live_state is not None:
            state = LiveState(**update.live_state)
            start_ns = self._clock.here_ns(state.start_ns) if state.start_ns else 0
            state = replace(state, t_ns=self._clock.here_ns(state.t_ns), start_ns=start_ns)
            descriptor = os.open(live_state_path(spool), os.O_WRONLY | os.O_CREAT, 0o644)
            write_live_state(descriptor, state)
            os.close(descriptor)

    def _write_result(self, number: int, result: Mapping[str, Any]) -> None:
        with os.fdopen(self._outputs.pop(number), "wb") as output:
            output.write(json.dumps(result).encode() + b"\n")
