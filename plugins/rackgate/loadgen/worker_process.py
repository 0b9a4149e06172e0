"""One worker as whoever offers the load sees it: told a plan, heard until its result, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from rackgate.loadgen.child_process import start_child
from rackgate.loadgen.machine_clock import MachineClock, clock_path, on_local_clock, read_clock
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.worker.live_state import LiveState, live_state_path, read_live_state
from rackgate.loadgen.worker.spool import read_spool
from rackgate.nouns.sample import Sample

_MOMENTS = ("start_ns", "end_ns", "steady_start_ns", "steady_end_ns")

_BLOCK_BYTES = 1 << 18
_RECENT_BYTES = 1 << 22
"""What is read at most of a spool that has grown since it was looked at: memory must not grow with it."""


class WorkerLink(Protocol):
    """The way to one worker."""

    @property
    def process_id(self) -> int:
        """The process of this machine that is the worker, or that reaches it."""

    @property
    def running(self) -> bool:
        """True while that process is there."""

    @property
    def output(self) -> int:
        """What the worker's result will come through."""

    def tell(self, message: bytes) -> None:
        """Say something to the worker; one that is gone is found out by its silence."""

    def end(self, grace_s: float) -> str:
        """Let the worker end, kill it after `grace_s`, let go of everything; return how it ended."""


class ChildWorkerLink:
    """A worker that is a child of this process."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the worker lives
        self._process = start_child("rackgate.loadgen.worker.main", stderr=self._errors)
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the worker has no pipes")
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._words: str | None = None

    @property
    def process_id(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while it is there."""
        return self._process.poll() is None

    @property
    def output(self) -> int:
        """Its standard output."""
        return self._stdout.fileno()

    def tell(self, message: bytes) -> None:
        """Write to its standard input."""
        if not self._stdin.closed:
            with suppress(OSError):
                self._stdin.write(message)
                self._stdin.flush()

    def end(self, grace_s: float) -> str:
        """Close its standard input, which ends it; safe to call twice."""
        if self._words is None:
            with suppress(OSError):
                self._stdin.close()
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGKILL)
                self._process.wait()
            self._words = self._last_words()
            self._stdout.close()
            self._errors.close()
        return self._words

    def _last_words(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2000))
        tail = self._errors.read().decode("utf-8", "replace").strip()
        code = self._process.returncode
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        last = tail.splitlines()[-1] if tail else ""
        return f"the load worker died ({how}) {last}".strip()


class WorkerProcess:
    """A worker on its way. What it measured lies in its spool; its result is one line of JSON.

    Without a `link` it is a process of this machine.
    """

    def __init__(self, plan: LoadPlan, link: WorkerLink | None = None) -> None:
        self.plan = plan
        self.spool = Path(plan.spool)
        self._said = b""
        self._ended = False
        self._counted = self._counted_bytes = self._read_bytes = 0
        self._link: WorkerLink = link or ChildWorkerLink()
        if link is None:
            self._link.tell((plan.to_json() + "\n").encode())
        self._words = ""

    @property
    def process_id(self) -> int:
        """Its process id, of one on another machine that of the process that reaches it."""
        return self._link.process_id

    @property
    def running(self) -> bool:
        """True while it is there."""
        return self._link.running

    @property
    def output(self) -> int | None:
        """What its result will come through; None once all was heard."""
        return None if self._ended else self._link.output

    @property
    def result(self) -> dict[str, Any] | None:
        """Its result, moments on this machine's clock; None if it ended without one."""
        told = self._told()
        if told is None or "died" in told:
            return None
        clock = self.clock
        return told if clock is None else {**told, **{name: clock.here_ns(told[name]) for name in _MOMENTS}}

    @property
    def now(self) -> LiveState | None:
        """Where it stands; None before it has said so."""
        return read_live_state(live_state_path(self.spool))

    @property
    def clock(self) -> MachineClock | None:
        """The clock of the machine that it runs on; None if that is this one."""
        return read_clock(clock_path(self.spool))

    def samples(self) -> Iterator[Sample]:
        """Yield each sample that it kept, moments on this machine's clock."""
        clock = self.clock
        for sample in read_spool(self.spool):
            yield sample if clock is None else on_local_clock(sample, clock)

    def count(self) -> int:
        """Return how many requests have ended so far, warm-up and dropped ones included."""
        with suppress(FileNotFoundError), self.spool.open("rb") as spool:
            spool.seek(self._counted_bytes)
            while block := spool.read(_BLOCK_BYTES):
                self._counted_bytes += len(block)
                self._counted += block.count(b"\n")
        return self._counted

    def recent(self) -> list[bytes]:
        """Return the lines of requests that have ended since this was asked before, of 4 MiB at most."""
        with suppress(FileNotFoundError), self.spool.open("rb") as spool:
            begin = max(self._read_bytes, spool.seek(0, os.SEEK_END) - _RECENT_BYTES)
            spool.seek(begin)
            new = spool.read(_RECENT_BYTES)
            whole = new[: new.rfind(b"\n") + 1]
            torn = begin > self._read_bytes
            self._read_bytes = begin + len(whole)
            return whole.splitlines()[torn:]
        return []

    def piece(self, position: int, most: int) -> bytes:
        """Return what its spool holds from a position on, `most` bytes at most."""
        with suppress(FileNotFoundError), self.spool.open("rb") as spool:
            spool.seek(position)
            return spool.read(most)
        return b""

    def tell(self, message: bytes) -> None:
        """Say something to it."""
        self._link.tell(message)

    def hear(self) -> None:
        """Take in what it said, when there is something to read."""
        if self.output is None:
            return
        piece = os.read(self.output, 65536)
        self._said += piece
        self._ended = not piece or self._said.endswith(b"\n")

    def end(self, grace_s: float) -> None:
        """Let it end, and kill it after `grace_s`."""
        self._ended = True
        self._words = self._link.end(grace_s)

    def tidy(self) -> None:
        """Let go of everything but the spool; safe to call twice."""
        for path in _beside(self.spool):
            path.unlink(missing_ok=True)

    def last_words(self) -> str:
        """Return how a worker died that has ended without a result."""
        return str((self._told() or {}).get("died") or self._words)

    def _told(self) -> dict[str, Any] | None:
        try:
            told: dict[str, Any] = json.loads(self._said)
        except ValueError:
            return None
        return told


def clear(spool: Path) -> None:
    """Remove what a worker before this one left at its spool."""
    for path in (spool, *_beside(spool)):
        path.unlink(missing_ok=True)


def _beside(spool: Path) -> tuple[Path, ...]:
    return live_state_path(spool), clock_path(spool)
