"""How whoever offers a load reaches one of its workers; here one that is a process of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import Protocol

from rackgate.loadgen.child import start_child


class Link(Protocol):
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


class ChildLink:
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
