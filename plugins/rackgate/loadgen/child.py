"""How a process of ours is started: the same interpreter, the same packages, a session of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO


def start_child(
    module: str, *, control: int | None = None, stderr: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Run a module of this project with pipes for standard input and output.

    With a descriptor `control` that is its standard input, and what it prints goes to `stderr`.

    It finds what its parent finds, in the same order, and nothing in the current directory. Ctrl-C does
    not reach it: that is for the parent, who ends it in order.
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
