"""What one load machine is asked while its workers offer a load, and where its answers go."""

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
from rackgate.loadgen.remote.load_machine import MOST_AT_ONCE, WorkerUpdate
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.worker.live_state import LiveState, live_state_path, write_live_state
from rackgate.loadgen.worker.start_barrier import START_DELAY_NS

_TIMES = 32
"""Round trips of one reading of a clock."""

_READ_CLOCK_EVERY_S = 60.0
_BEFORE_EVERY_S = 0.02
_EVERY_S = 0.2
_LEAD_NS = 300_000_000
"""From the moment at which all workers are known to be ready: each machine has to be told."""


class StartAgreement:
    """The moment at which the workers of all machines begin; one object for all that ask."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._lock = threading.Lock()
        self._ready: dict[str, int] = {}
        self._moment_ns: int | None = None

    def moment_ns(self, machine: str, ready: int) -> int | None:
        """Return the moment, once every machine has said how many of its workers are ready."""
        with self._lock:
            self._ready[machine] = ready
            if self._moment_ns is None and sum(self._ready.values()) == self.workers:
                self._moment_ns = perf_counter_ns() + _LEAD_NS
            return self._moment_ns


class MachineLoad:
    """One machine's part of a load: `workers` gives each worker's plan and where its result is written.

    `ask(question, ...)` asks the machine's `LoadMachine` and raises `ConnectionError` when it is lost.
    """

    def __init__(
        self,
        machine: str,
        ask: Callable[..., Any],
        start: StartAgreement,
        cancelled: threading.Event,
        workers: Mapping[int, tuple[LoadPlan, int]],
    ) -> None:
        self._machine = machine
        self._ask = ask
        self._start = start
        self._cancelled = cancelled
        self._plans = {number: plan for number, (plan, _) in workers.items()}
        self._outputs = {number: output for number, (_, output) in workers.items()}
        self._clock = MachineClock(machine=machine, readings=())

    def run(self) -> None:
        """Carry everything to its end; what a lost machine measured until then is kept."""
        try:
            if self._plans:
                self._carry()
            self._ask("close")
        except OSError as error:
            for number in list(self._outputs):
                self._result(number, {"died": str(error)})

    def _carry(self) -> None:
        self._read_clock()
        self._ask("start", [plan.to_json() for plan in self._plans.values()], self._files())
        read_at, told, begun = time.monotonic(), False, self._start.workers == 1
        while self._outputs:
            if self._cancelled.is_set() and not told:
                self._ask("cancel")
                told = True
            begun = begun or self._begin()
            heard: list[WorkerUpdate] = self._ask("hear")
            for one in heard:
                self._take(one)
            ended = [one for one in heard if one.ended]
            if ended or time.monotonic() - read_at > _READ_CLOCK_EVERY_S:
                self._read_clock()
                read_at = time.monotonic()
            for one in ended:
                self._result(one.worker, {"died": one.died} if one.result is None else one.result)
            if not any(len(one.lines) == MOST_AT_ONCE for one in heard):
                self._rest(_EVERY_S if begun else _BEFORE_EVERY_S, told=told)

    def _begin(self) -> bool:
        """Tell the machine's workers when to begin, once that is known."""
        moment_ns = self._start.moment_ns(self._machine, len(self._ask("ready")))
        if moment_ns is None:
            return False
        there_ns = moment_ns + self._clock.readings[-1].offset_ns
        self._ask("begin", there_ns - START_DELAY_NS, self._start.workers - len(self._plans))
        return True

    def _rest(self, seconds: float, *, told: bool) -> None:
        if told:
            time.sleep(seconds)
        else:
            self._cancelled.wait(seconds)

    def _files(self) -> dict[str, bytes]:
        """Return what the load reads, by its path here; never a private key."""
        plan = next(iter(self._plans.values()))
        authorities = (endpoint.route.ca_file for endpoint in plan.endpoints)
        named = (plan.load.trace, plan.load.tokenizer, *authorities)
        files = {name: Path(name) for name in named if name is not None}
        return {
            name: (path / "tokenizer.json" if path.is_dir() else path).read_bytes()
            for name, path in files.items()
        }

    def _read_clock(self) -> None:
        reading = measure_clock_offset(lambda: int(self._ask("clock")), _TIMES)
        self._clock = replace(self._clock, readings=(*self._clock.readings, reading))
        for plan in self._plans.values():
            write_clock(clock_path(Path(plan.spool)), self._clock)

    def _take(self, heard: WorkerUpdate) -> None:
        spool = Path(self._plans[heard.worker].spool)
        if heard.lines:
            with spool.open("ab") as file:
                file.write(heard.lines)
        if heard.now is not None:
            now = LiveState(**heard.now)
            start_ns = self._clock.here_ns(now.start_ns) if now.start_ns else 0
            descriptor = os.open(live_state_path(spool), os.O_WRONLY | os.O_CREAT, 0o644)
            write_live_state(descriptor, replace(now, t_ns=self._clock.here_ns(now.t_ns), start_ns=start_ns))
            os.close(descriptor)

    def _result(self, number: int, result: Mapping[str, Any]) -> None:
        with os.fdopen(self._outputs.pop(number), "wb") as output:
            output.write(json.dumps(result).encode() + b"\n")
