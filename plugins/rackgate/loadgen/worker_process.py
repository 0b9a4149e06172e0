"""One worker process as its parent sees it: told a plan, heard until its result, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackgate.loadgen.child import start_child
from rackgate.loadgen.now import Now, now_path, read_now

if TYPE_CHECKING:
    from rackgate.loadgen.plan import Plan

__all__ = ["WorkerProcess"]

_BLOCK_BYTES = 1 << 18
_RECENT_BYTES = 1 << 22
"""What is read at most of a spool that has grown since it was looked at: memory must not grow with it."""


class WorkerProcess:
    """A worker on its way. What it measured lies in its spool; its result is one line of JSON."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.spool = Path(plan.spool)
        self.spool.unlink(missing_ok=True)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the worker lives
        self._said = b""
        self._ended = False
        self._counted = self._counted_bytes = self._read_bytes = 0
        self._process = start_child("rackgate.loadgen.worker", stderr=self._errors)
        self.tell((plan.to_json() + "\n").encode())

    @property
    def process_id(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while it is there."""
        return self._process.poll() is None

    @property
    def output(self) -> int | None:
        """What its result will come through; None once all was heard."""
        stdout = self._process.stdout
        return None if self._ended or stdout is None or stdout.closed else stdout.fileno()

    @property
    def result(self) -> dict[str, Any] | None:
        """Its result; None if it ended without one."""
        try:
            told: dict[str, Any] = json.loads(self._said)
        except ValueError:
            return None
        return told

    @property
    def now(self) -> Now | None:
        """Where it stands; None before it has said so."""
        return read_now(now_path(self.spool))

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

    def tell(self, message: bytes) -> None:
        """Say something on its standard input."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            with suppress(OSError):  # a worker that is gone is found out by its silence
                stdin.write(message)
                stdin.flush()

    def hear(self) -> None:
        """Take in what it said, when there is something to read."""
        if self.output is None:
            return
        piece = os.read(self.output, 65536)
        self._said += piece
        self._ended = not piece or self._said.endswith(b"\n")

    def end(self, grace_s: float) -> None:
        """Let it end, and kill it after `grace_s`."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def tidy(self) -> None:
        """Let go of everything but the spool; safe to call twice."""
        now_path(self.spool).unlink(missing_ok=True)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def last_words(self) -> str:
        """Return how a worker died that gave no result."""
        self._errors.seek(0)
        tail = self._errors.read()[-2000:].decode("utf-8", "replace").strip()
        code = self._process.returncode
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        last = tail.splitlines()[-1] if tail else ""
        return f"the load worker died ({how}) {last}".strip()
