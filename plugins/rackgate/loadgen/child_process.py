"""Start child processes with the same interpreter and packages, and raise their priority."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

_NICENESS = -10


def start_child(
    module: str, *, control: int | None = None, stderr: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Run a module of this project as a child process with pipes for standard input and output.

    The descriptor `control`, if given, becomes its standard input, and its output goes to `stderr`. The child
    has its parent's import path without the current directory. It runs in a session of its own: Ctrl-C
    reaches the parent only, which then ends the child.
    """
    search = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)  # noqa: PTH100 - a search path
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE if control is None else control,
        stdout=subprocess.PIPE if control is None else stderr,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": search},
        start_new_session=True,
    )


class ChildProcess:
    """A child process with pipes, whose standard error is kept to explain its exit.

    `describe_exit(status, last_line)` returns the text of `end` from the exit status in words and the last
    line of standard error.
    """

    def __init__(
        self, module: str, *, describe_exit: Callable[[str, str], str], control: int | None = None
    ) -> None:
        self._describe_exit = describe_exit
        self._exit: str | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = start_child(module, control=control, stderr=self._errors)

    @property
    def process_id(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process exists."""
        return self._process.poll() is None

    @property
    def output(self) -> int:
        """The descriptor of its standard output. Raises `RuntimeError` for a process without pipes."""
        if self._process.stdout is None:
            raise RuntimeError("the process has no pipes")
        return self._process.stdout.fileno()

    def send(self, message: bytes) -> None:
        """Write to its standard input, if it still reads."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            with suppress(OSError):
                stdin.write(message)
                stdin.flush()

    def end(self, grace_s: float) -> str:
        """Close its standard input, kill it after `grace_s`, and describe its exit; safe to call twice."""
        if self._exit is None:
            stdin, stdout = self._process.stdin, self._process.stdout
            with suppress(OSError):
                if stdin is not None:
                    stdin.close()
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            code = self._process.returncode
            status = f"signal {-code}" if code < 0 else f"exit status {code}"
            self._exit = self._describe_exit(status, self._last_error_line())
            if stdout is not None:
                stdout.close()
            self._errors.close()
        return self._exit

    def _last_error_line(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2000))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""


def raise_priority(niceness: int = _NICENESS) -> None:
    """Raise this process's priority where permitted, so that it does not wait for what it measures.

    With Linux autogroups niceness weighs only within one session. The session's group is raised too if this
    process leads a session.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(niceness), encoding="ascii")
