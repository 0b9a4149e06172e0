"""A process that answers one line with another, or is left alone with what it hangs in."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, Any, TypeVar

T = TypeVar("T")

_START_S = 20.0
_DEATH_S = 2.0


class ChildHangs(Exception):
    """It did not answer in time; it was killed, and nobody waits for its death."""


class ChildDied(Exception):
    """It ended, or answered something that cannot be read."""


class Child:
    """`python -m MODULE` with pipes; started at the first question, and again after it died."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self._module = module
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._stuck: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._poll = select.poll()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The running process, None if there is none."""
        return None if self._process is None else self._process.pid

    def ask(self, question: bytes, read: Callable[[bytes], T], deadline_s: float) -> T:
        """Return what `read` makes of its answer to a line.

        Raises ChildHangs after `deadline_s`, ChildDied if there is nobody to ask or `read` raises ValueError.
        The first question may take longer, as Python starts. While a killed process is stuck in the
        kernel no other is started: a sick driver is not asked again.
        """
        if self._closed:
            raise ChildDied("it was closed")
        if self._stuck is not None and not _ended(self._stuck, 0.2):
            raise ChildHangs(f"process {self._stuck.pid} is stuck in the driver and cannot be killed")
        self._stuck = None
        fresh = self._process is None
        process = self._process or self._start()
        try:
            _pipe(process.stdin).write(question)
            return read(self._line(process, deadline_s + (_START_S if fresh else 0.0)))
        except TimeoutError as error:
            self._abandon()
            raise ChildHangs(f"no answer within {deadline_s:g} s") from error
        except (OSError, EOFError, ValueError) as error:
            kill_group(process)
            self._abandon()
            raise ChildDied(str(error) or type(error).__name__) from error

    def close(self) -> None:
        """End the process and wait for it a moment; one that is stuck is left alone."""
        self._closed = True
        process, self._process = self._process, None
        stuck, self._stuck = self._stuck, None
        if process is not None:
            _close(process.stdin)
            if not _ended(process):
                kill_group(process)
                _ended(process)
            _close(process.stdout)
        if stuck is not None:
            _ended(stuck)

    def _start(self) -> subprocess.Popen[bytes]:
        self._rest = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=None if self._environment is None else {**os.environ, **self._environment},
            start_new_session=True,
        )
        self._poll = select.poll()
        self._poll.register(_pipe(self._process.stdout), select.POLLIN)
        return self._process

    def _abandon(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            kill_group(process)
            _close(process.stdin)
            _close(process.stdout)
            self._stuck = process

    def _line(self, process: subprocess.Popen[bytes], deadline_s: float) -> bytes:
        pipe = _pipe(process.stdout)
        until = time.monotonic() + deadline_s
        while b"\n" not in self._rest:
            left_ms = max(0.0, until - time.monotonic()) * 1e3
            if not self._poll.poll(left_ms):
                raise TimeoutError
            chunk = os.read(pipe.fileno(), 1 << 16)
            if not chunk:
                raise EOFError(f"exit status {process.poll()}")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process that leads a group, with all of the group; waits for nobody."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _ended(process: subprocess.Popen[bytes], wait_s: float = _DEATH_S) -> bool:
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with contextlib.suppress(OSError, ValueError):  # what is in the buffer is for nobody now
            pipe.close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise EOFError("no pipe")
    return pipe
