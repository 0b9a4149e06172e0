"""What runs on a load machine: the same worker processes as here, and what they said, a piece at a time.

Nothing in this module knows how it is reached. The workers are children of their own: whatever carries the
questions keeps its threads out of the processes that stamp arrivals.
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

MOST_AT_ONCE = 1 << 22
"""Bytes of samples of one worker that go out in one answer."""

_GRACE_S = 2.0
_PREFIX = "rackgate-load-machine-"
_LOCK = "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineInfo:
    """What a machine is: `boot` tells kernels apart, `cores` may be used, `version` is our package's."""

    boot: str
    cores: int
    version: str

    @classmethod
    def here(cls) -> MachineInfo:
        """Return what the machine is that this runs on."""
        return cls(
            boot=Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
            cores=len(os.sched_getaffinity(0)),
            version=version("pytest-rackgate"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUpdate:
    """What is new of one worker: `lines` are bytes of its spool, `result` or `died` comes last."""

    worker: int
    lines: bytes = b""
    now: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    died: str | None = None

    @property
    def ended(self) -> bool:
        """Whether this was all."""
        return self.result is not None or self.died is not None


class LoadMachine:
    """The workers of one load on one machine.

    Its folder is gone when it is closed; that of one that was killed, when the next one begins.
    """

    def __init__(self) -> None:
        _remove_abandoned()
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
        self._lock = _locked(Path(self._folder.name) / _LOCK)
        self._workers: list[WorkerProcess] = []
        self._sent: dict[int, int] = {}
        self._meeting = Path(self._folder.name) / "start_file"

    def clock(self) -> int:
        """Return this machine's CLOCK_MONOTONIC in ns."""
        return perf_counter_ns()

    def about(self) -> MachineInfo:
        """Return what this machine is."""
        return MachineInfo.here()

    def start(self, plans: Sequence[str], files: Mapping[str, bytes]) -> None:
        """Start a worker for each plan (JSON); `files` holds the files that loads read, by path."""
        folder = Path(self._folder.name)
        here = {}
        for number, (path, content) in enumerate(files.items()):
            own = folder / f"{number}" / Path(path).name
            own.parent.mkdir()
            own.write_bytes(content)
            here[path] = str(own)
        for text in plans:
            plan = _with_files(LoadPlan.from_json(text), here)
            spool = str(folder / f"{plan.worker}.jsonl")
            self._workers.append(WorkerProcess(replace(plan, spool=spool, start_file=str(self._meeting))))
            self._sent[plan.worker] = 0

    def ready(self) -> list[int]:
        """Return the moments at which workers here said that they are ready to begin."""
        return ready_moments(self._meeting)

    def begin(self, moment_ns: int, elsewhere: int) -> None:
        """Say that the workers elsewhere, so many of them, were ready at a moment of this machine's clock."""
        add_ready_moments(self._meeting, [moment_ns] * elsewhere)

    def hear(self) -> list[WorkerUpdate]:
        """Return what is new of each worker that has not ended."""
        heard = [self._hear(worker) for worker in self._workers if worker.plan.worker in self._sent]
        for one in heard:
            if one.ended:
                del self._sent[one.worker]
        return heard

    def cancel(self) -> None:
        """Tell the workers to end the load."""
        for worker in self._workers:
            worker.tell(b"cancel\n")

    def close(self) -> None:
        """End the workers and remove what they left here."""
        for worker in self._workers:
            worker.end(_GRACE_S)
        os.close(self._lock)
        self._folder.cleanup()

    def _hear(self, worker: WorkerProcess) -> WorkerUpdate:
        number = worker.plan.worker
        while worker.output is not None and _readable(worker.output):
            worker.hear()
        over = worker.output is None  # before the spool is read: what comes after that is nothing
        lines = worker.piece(self._sent[number], MOST_AT_ONCE)
        self._sent[number] += len(lines)
        now = worker.now
        heard = WorkerUpdate(worker=number, lines=lines, now=None if now is None else asdict(now))
        if not over or len(lines) == MOST_AT_ONCE:
            return heard
        worker.end(_GRACE_S)
        result = worker.result
        return replace(heard, result=result, died=worker.last_words() if result is None else None)


def _locked(path: Path) -> int:
    """Make a file that is locked as long as this process lives; it is never seen unlocked."""
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    new.rename(path)
    return descriptor


def _remove_abandoned() -> None:
    """Remove the folders of this user's load machines whose process is gone."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError), lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


def _with_files(plan: LoadPlan, here: Mapping[str, str]) -> LoadPlan:
    """Return a plan that names its files as they are here."""
    load = replace(
        plan.load, trace=here.get(plan.load.trace or ""), tokenizer=here.get(plan.load.tokenizer or "")
    )
    endpoints = tuple(
        replace(one, route=replace(one.route, ca_file=here.get(one.route.ca_file or "")))
        for one in plan.endpoints
    )
    return replace(plan, load=load, endpoints=endpoints)


def _readable(descriptor: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(0))
