"""A small process between us and an engine: it ends the engine's whole group when we are gone.

Run as a script with `python -I -S`; it imports only the standard library. Its standard input is a pipe
whose other end we hold: end of file means that we closed it or died, even by SIGKILL. Then the group
gets SIGTERM, and SIGKILL when the grace is over. Lines on its standard output: `started PID`,
`failed TEXT`, `exit STATUS` (negative for a signal). Its standard error is the engine's log. LIMITS are
resource limits of the engine, `nofile=65536,memlock=-1`, -1 for unlimited.

A death signal set by us directly would not do: the kernel ties it to the thread that started the
engine, and engines are started from worker threads too.

usage: keeper.py GRACE_S LIMITS COMMAND...
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LINGER_S = 2.0
"""How long children may outlive the main process before the group is killed."""


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _limit(limits: str) -> None:
    """Set the soft and the hard limits; the hard one is never raised, which only root may."""
    for limit in filter(None, limits.split(",")):
        name, _, value = limit.partition("=")
        number = getattr(resource, f"RLIMIT_{name.upper()}")
        wanted = int(value) if int(value) >= 0 else resource.RLIM_INFINITY
        try:
            resource.setrlimit(number, (wanted, wanted))
        except ValueError:
            resource.setrlimit(number, (resource.getrlimit(number)[1],) * 2)


def _become(command: list[str], limits: str, failure: int, keeper: int) -> None:
    """Turn the forked child into the engine; never returns. `failure` closes itself when that worked."""
    os.setsid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:  # the keeper died before the death signal was set
        os._exit(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    try:
        _limit(limits)
        os.execvp(command[0], command)  # noqa: S606  no shell is what we want
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        os.write(failure, f"{command[0]}: {reason}".encode())
        os._exit(127)


def _start(command: list[str], limits: str) -> tuple[int, str]:
    """Fork the engine; return its pid and, if it could not become the command, why."""
    keeper = os.getpid()
    outcome, failure = os.pipe()
    engine = os.fork()
    if engine == 0:
        _become(command, limits, failure, keeper)
    os.close(failure)
    why = os.read(outcome, 4096).decode("utf-8", "replace")
    os.close(outcome)
    return engine, why


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def _reap() -> bool:
    """Collect ended children; return whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _end_group(group: int, grace_s: float, number: int) -> None:
    """Send a signal to the group, wait for it to empty, then SIGKILL what is left."""
    if number:
        _signal_group(group, number)
    for limit_s in (grace_s, 5.0):
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if not _reap():
                return
            time.sleep(0.01)
        _signal_group(group, signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Start the command, and stay until it or our owner has ended."""
    grace_s, limits, command = float(arguments[0]), arguments[1], arguments[2:]
    status = os.dup(1)
    os.dup2(2, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    engine, why = _start(command, limits)
    if why:
        _tell(status, f"failed {why}\n")
        return
    _tell(status, f"started {engine}\n")

    watched = select.poll()
    watched.register(0, select.POLLIN | select.POLLHUP)
    watched.register(os.pidfd_open(engine), select.POLLIN)
    ready = {descriptor for descriptor, _ in watched.poll()}
    if 0 in ready and len(ready) == 1:
        _end_group(engine, grace_s, signal.SIGTERM)
        return
    _, wait_status = os.waitpid(engine, 0)
    _tell(status, f"exit {os.waitstatus_to_exitcode(wait_status)}\n")
    _end_group(engine, LINGER_S, 0)


def _tell(status: int, line: str) -> None:
    try:
        os.write(status, line.encode())
    except OSError:  # our owner is gone; the end of its pipe is handled next
        return


if __name__ == "__main__":
    main(sys.argv[1:])
