"""Start child processes with the same interpreter and packages, and raise their priority."""

from __future__ import annotations

import os
import subprocess
import sys
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
