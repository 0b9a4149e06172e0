"""Lets the instrument go before what it measures, where the machine allows that."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_NICENESS = -10


def go_first(niceness: int = _NICENESS) -> None:
    """Raise this process's priority; without the right to do so, nothing happens.

    On Linux with autogroups niceness weighs only within one session, so the session's group is raised
    too; the caller must be alone in its session.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(niceness), encoding="ascii")
