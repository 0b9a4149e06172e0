"""The shared OpenSSH connection to a node: one for all commands of this process."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rackgate.hosts.runner import Ran, run_process
from rackgate.hosts.shared_resources import Leases
from rackgate.nouns.measurement import Reason

GRACE_S = 2.0
"""Seconds beyond a command's deadline for the way there and back."""

_MOST_SESSIONS = 8  # sshd's MaxSessions is 10 for each connection


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAddress:
    """The destination as for `ssh`, and `config`, which replaces the user's file."""

    destination: str
    config: Path | None = None
    connect_timeout_s: float = 10.0


class SshConnection:
    """The shared connection. Its first user opens it, the others wait for that; at most 8 commands at once.

    Where the user's own configuration shares connections already, its sockets are used and left.
    """

    def __init__(self, address: SshAddress) -> None:
        self._address = address
        self._sockets: str | None = None
        self._options: tuple[str, ...] | None = None
        self._opened = False
        self._opening = threading.Lock()
        self._sessions = threading.BoundedSemaphore(_MOST_SESSIONS)

    @contextmanager
    def session(self, deadline_s: float) -> Iterator[tuple[tuple[str, ...], Ran | None]]:
        """Give (the command line of `ssh` up to the remote command, None), or why there is no connection."""
        ends = time.monotonic() + deadline_s
        late = Ran(reason=Reason.TIMEOUT, detail=f"no connection within {deadline_s:g} s", status=None)
        if not self._sessions.acquire(timeout=deadline_s):
            yield (), late
            return
        try:
            if not self._opening.acquire(timeout=max(0.0, ends - time.monotonic())):
                yield (), late
                return
            try:
                problem = self._open(max(0.1, ends - time.monotonic()))
                argv = (*self._client(), "--", self._address.destination)
            finally:
                self._opening.release()
            yield argv, problem
        finally:
            self._sessions.release()

    def close(self) -> None:
        """End the shared connection; one of the user's own is left."""
        if self._sockets is None:
            return
        run_process([*self._client(), "-O", "exit", "--", self._address.destination], GRACE_S)
        shutil.rmtree(self._sockets, ignore_errors=True)
        self._sockets, self._options, self._opened = None, None, False

    def _open(self, deadline_s: float) -> Ran | None:
        """Open it if it is not; return what came of that if it failed."""
        client = self._client()
        there = self._opened if self._sockets is None else Path(self._sockets, "s").exists()
        if there:
            return None
        ran = run_process([*client, "--", self._address.destination, "true"], deadline_s + GRACE_S)
        self._opened = ran.ok
        # A shell that does not know `true` was reached all the same.
        return None if ran.status not in (None, 255) else ran

    def _client(self) -> tuple[str, ...]:
        if self._options is None:
            self._options = self._found_options()
        return self._options

    def _found_options(self) -> tuple[str, ...]:
        config = self._address.config
        options = ["ssh", "-T", "-x", *(() if config is None else ("-F", str(config)))]
        settings = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": str(math.ceil(self._address.connect_timeout_s)),
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "2",
            "LogLevel": "ERROR",
        }
        if not self._has_sockets_of_its_own(options):
            # The path of a Unix socket may have 108 bytes: a short folder, readable to us alone.
            self._sockets = self._sockets or tempfile.mkdtemp(prefix="rg-ssh-", dir=_short_folder())
            settings |= {
                "ControlMaster": "auto",
                "ControlPersist": "60",
                "ControlPath": f"{self._sockets}/s",
            }
        return (*options, *(part for name, value in settings.items() for part in ("-o", f"{name}={value}")))

    def _has_sockets_of_its_own(self, options: Sequence[str]) -> bool:
        """Ask the client whether the user's configuration shares connections already."""
        try:
            said = subprocess.run(
                [*options, "-G", "--", self._address.destination],
                capture_output=True,
                text=True,
                check=False,
                timeout=GRACE_S + 3,
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return False
        lines = dict(line.partition(" ")[::2] for line in said.splitlines())
        return lines.get("controlmaster", "false") in ("auto", "true", "yes") and "controlpath" in lines


def _short_folder() -> str | None:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return runtime if runtime and len(runtime) < 40 and Path(runtime).is_dir() else None


CONNECTIONS: Leases[SshAddress, SshConnection] = Leases(SshConnection)
"""The connections of this process, one to each address."""
