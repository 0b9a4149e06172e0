"""A worker process as its parent sees it: started with a plan, read until its result, ended."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from rackgate.loadgen.child_process import ChildProcess
from rackgate.loadgen.machine_clock import MachineClock, clock_path, on_local_clock, read_clock
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.worker.live_state import LiveState, live_state_path, read_live_state
from rackgate.loadgen.worker.spool import read_spool
from rackgate.nouns.sample import Sample

_MOMENTS = ("start_ns", "end_ns", "steady_start_ns", "steady_end_ns")

_BLOCK_BYTES = 1 << 18
_MAX_RECENT_BYTES = 1 << 22
"""The most that is read of a spool at once, so that memory stays bounded."""


class WorkerLink(Protocol):
    """The connection to one worker."""

    @property
    def process_id(self) -> int:
        """The process on this machine: the worker itself, or the relay that reaches it."""

    @property
    def running(self) -> bool:
        """True while that process exists."""

    @property
    def output(self) -> int:
        """The descriptor from which the worker's result is read."""

    def send(self, message: bytes) -> None:
        """Send to the worker's standard input; a worker that has died is noticed elsewhere."""

    def end(self, grace_s: float) -> str:
        """Let the worker end, kill it after `grace_s`, close everything, and return how it ended."""


class WorkerProcess:
    """A running worker: its samples are in its spool, and its result is one line of JSON.

    Without a `link` it is a child of this process.
    """

    def __init__(self, plan: LoadPlan, link: WorkerLink | None = None) -> None:
        self.plan = plan
        self.spool = Path(plan.spool)
        self._received = b""
        self._ended = False
        self._counted = self._counted_bytes = self._read_bytes = 0
        if link is None:
            link = ChildProcess("rackgate.loadgen.worker.main", describe_exit=_describe_exit)
            link.send((plan.to_json() + "\n").encode())
        self._link = link
        self._exit = ""

    @property
    def process_id(self) -> int:
        """The worker's process id, or the relay's for a worker on another machine."""
        return self._link.process_id

    @property
    def running(self) -> bool:
        """True while that process exists."""
        return self._link.running

    @property
    def output(self) -> int | None:
        """The descriptor from which its result is read, None once it was read."""
        return None if self._ended else self._link.output

    @property
    def result(self) -> dict[str, Any] | None:
        """Its result with moments on this machine's clock, None if it ended without one."""
        result = self._message()
        if result is None or "died" in result:
            return None
        clock = self.clock
        if clock is not None:
            result.update({name: clock.here_ns(result[name]) for name in _MOMENTS})
        return result

    @property
    def live_state(self) -> LiveState | None:
        """Its last live state, None before the first."""
        return read_live_state(live_state_path(self.spool))

    @property
    def clock(self) -> MachineClock | None:
        """The clock of its load machine, None if it runs on this machine."""
        return read_clock(clock_path(self.spool))

    def samples(self) -> Iterator[Sample]:
        """Yield each sample of its spool with moments on this machine's clock."""
        clock = self.clock
        for sample in read_spool(self.spool):
            yield sample if clock is None else on_local_clock(sample, clock)

    def finished_count(self) -> int:
        """Return the number of finished requests so far, including warm-up and dropped ones."""
        with suppress(FileNotFoundError), self.spool.open("rb") as spool:
            spool.seek(self._counted_bytes)
            while block := spool.read(_BLOCK_BYTES):
                self._counted_bytes += len(block)
                self._counted += block.count(b"\n")
        return self._counted

    def recent(self) -> list[bytes]:
        """Return the spool lines since the last call, the last 4 MiB at most."""
        with suppress(FileNotFoundError), self.spool.open("rb") as spool:
            begin = max(self._read_bytes, spool.seek(0, os.SEEK_END) - _MAX_RECENT_BYTES)
            spool.seek(begin)
            new = spool.read(_MAX_RECENT_BYTES)
            whole = new[: new.rfind(b"\n") + 1]
            cut = begin > self._read_bytes
            self._read_bytes = begin + len(whole)
            return whole.splitlines()[cut:]
        return []

    def spool_bytes(self, position: int, most: int) -> bytes:
        """Return at most `most` bytes of its spool from a position on."""
        with suppress(FileNotFoundError), self.spool.open("rb") as spool:
            spool.seek(position)
            return spool.read(most)
        return b""

    def send(self, message: bytes) -> None:
        """Send to its standard input."""
        self._link.send(message)

    def read(self) -> None:
        """Read from `output` once; call it when `output` is readable."""
        if self.output is None:
            return
        piece = os.read(self.output, 65536)
        self._received += piece
        self._ended = not piece or self._received.endswith(b"\n")

    def end(self, grace_s: float) -> None:
        """Let it end and kill it after `grace_s`."""
        self._ended = True
        self._exit = self._link.end(grace_s)

    def remove_state_files(self) -> None:
        """Remove the files beside its spool; safe to call twice."""
        for path in _state_files(self.spool):
            path.unlink(missing_ok=True)

    def failure_detail(self) -> str:
        """Return how a worker without a result died."""
        return str((self._message() or {}).get("died") or self._exit)

    def _message(self) -> dict[str, Any] | None:
        try:
            message: dict[str, Any] = json.loads(self._received)
        except ValueError:
            return None
        return message


def remove_old_files(spool: Path) -> None:
    """Remove the spool of an earlier worker and the files beside it."""
    for path in (spool, *_state_files(spool)):
        path.unlink(missing_ok=True)


def _state_files(spool: Path) -> tuple[Path, ...]:
    return live_state_path(spool), clock_path(spool)


def _describe_exit(status: str, last_line: str) -> str:
    return f"the load worker died ({status}) {last_line}".strip()
