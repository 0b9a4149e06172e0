"""The workers of a load on a load machine, and their output piece by piece.

This module does not know by what it is called. The workers are child processes, so that the caller's threads
do not disturb the processes that stamp arrivals.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.worker.start_barrier import add_ready_moments, ready_moments
from rackgate.loadgen.worker_process import WorkerProcess

MAX_SPOOL_BYTES = 1 << 22
"""The most bytes of one worker's spool in one update."""

_GRACE_S = 2.0
_PREFIX = "rackgate-load-machine-"
_LOCK = "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineInfo:
    """A machine: `boot` identifies its running kernel, `cores` are usable, `version` is our package's."""

    boot: str
    cores: int
    version: str

    @classmethod
    def here(cls) -> MachineInfo:
        """Return the info of this machine."""
        return cls(
            boot=Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
            cores=len(os.sched_getaffinity(0)),
            version=version("pytest-rackgate"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUpdate:
    """The news of one worker: `lines` are bytes of its spool; the last update has `result` or `died`."""

    worker: int
    lines: bytes = b""
    live_state: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    died: str | None = None

    @property
    def ended(self) -> bool:
        """Whether this is the last update."""
        return self.result is not None or self.died is not None


class LoadMachine:
    """The workers of one load on one machine.

    Its folder is removed when it is closed, or by the next one if it was killed.
    """

    def __init__(self) -> None:
        _remove_abandoned()
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
        self._lock = _locked(Path(self._folder.name) / _LOCK)
        self._workers: list[WorkerProcess] = []
        self._positions: dict[int, int] = {}
        self._meeting = Path(self._folder.name) / "start_file"

    def clock(self) -> int:
        """Return this machine's CLOCK_MONOTONIC in ns."""
        return perf_counter_ns()

    def about(self) -> MachineInfo:
        """Return the info of this machine."""
        return MachineInfo.here()

    def start(self, plans: Sequence[str], files: Mapping[str, bytes]) -> None:
        """Start a worker for each plan (JSON); `files` holds the files that loads read, by path."""
        folder = Path(self._folder.name)
        local = {}
        for number, (path, content) in enumerate(files.items()):
            own = folder / f"{number}" / Path(path).name
            own.parent.mkdir()
            own.write_bytes(content)
            local[path] = str(own)
        for text in plans:
            plan = _with_files(LoadPlan.from_json(text), local)
            spool = str(folder / f"{plan.worker}.jsonl")
            self._workers.append(WorkerProcess(replace(plan, spool=spool, start_file=str(self._meeting))))
            self._positions[plan.worker] = 0

    def ready(self) -> list[int]:
        """Return the moments at which workers on this machine became ready."""
        return ready_moments(self._meeting)

    def begin(self, moment_ns: int, elsewhere: int) -> None:
        """Report `elsewhere` workers on other machines as ready at a moment of this machine's clock."""
        add_ready_moments(self._meeting, [moment_ns] * elsewhere)

    def poll(self) -> list[WorkerUpdate]:
        """Return an update of each worker that has not ended."""
        updates = [self._update(worker) for worker in self._workers if worker.plan.worker in self._positions]
        for one in updates:
            if one.ended:
                del self._positions[one.worker]
        return updates

    def cancel(self) -> None:
        """Let the workers end the load."""
        for worker in self._workers:
            worker.send(b"cancel\n")

    def close(self) -> None:
        """End the workers and remove their files."""
        for worker in self._workers:
            worker.end(_GRACE_S)
        os.close(self._lock)
        self._folder.cleanup()

    def _update(self, worker: WorkerProcess) -> WorkerUpdate:
        number = worker.plan.worker
        while worker.output is not None and _readable(worker.output):
            worker.read()
        over = worker.output is None  # asked before the spool is read for the last time
        lines = worker.spool_bytes(self._positions[number], MAX_SPOOL_BYTES)
        self._positions[number] += len(lines)
        state = worker.live_state
        update = WorkerUpdate(worker=number, lines=lines, live_state=None if state is None else asdict(state))
        if not over or len(lines) == MAX_SPOOL_BYTES:
            return update
        worker.end(_GRACE_S)
        result = worker.result
        return replace(update, result=result, died=worker.failure_detail() if result is None else None)


def _locked(path: Path) -> int:
    """Create a file that is locked while this process lives, and that is never visible unlocked."""
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    new.rename(path)
    return descriptor


def _remove_abandoned() -> None:
    """Remove the folders of this user's load machines whose process has died."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError), lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


def _with_files(plan: LoadPlan, local: Mapping[str, str]) -> LoadPlan:
    """Return a plan with the paths of its files on this machine."""
    load = replace(
        plan.load, trace=local.get(plan.load.trace or ""), tokenizer=local.get(plan.load.tokenizer or "")
    )
    endpoints = tuple(
        replace(one, route=replace(one.route, ca_file=local.get(one.route.ca_file or "")))
        for one in plan.endpoints
    )
    return replace(plan, load=load, endpoints=endpoints)


def _readable(descriptor: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(0))
