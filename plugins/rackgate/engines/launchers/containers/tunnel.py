"""A daemon on another machine, brought here as a socket by the system's own OpenSSH client."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rackgate.engines.launchers.containers.daemon import Daemon, NoDaemon, open_daemon
from rackgate.engines.launchers.processes import keeper

if TYPE_CHECKING:
    import docker


_LIMIT_S = 30.0
_REMOTE_SOCKET = "/var/run/docker.sock"


@contextmanager
def reachable(daemon: Daemon) -> Iterator[Daemon]:
    """Yield the daemon as it can be reached from here; one behind ssh through a tunnel, gone afterwards.

    ssh_config, jump hosts, agents and control sockets keep working; nothing is asked at a terminal. Raises
    `NoDaemon`.
    """
    if not daemon.address.startswith("ssh://"):
        yield daemon
        return
    with tempfile.TemporaryDirectory(prefix="rackgate-") as folder:
        socket, said = Path(folder) / "docker.sock", Path(folder) / "said"
        with said.open("wb") as errors:
            # Its keeper ends the client when we are gone, even by SIGKILL.
            running = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, "2", "", *_command(daemon.address, socket)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        try:
            _wait_for(daemon, socket, said, running)
            yield replace(daemon, through=f"unix://{socket}")
        finally:
            if running.stdin is not None:
                running.stdin.close()
            running.wait()


def _command(address: str, socket: Path) -> list[str]:
    parts = urlsplit(address)
    options = ("BatchMode=yes", "ExitOnForwardFailure=yes", "ServerAliveInterval=15")
    login = f"{parts.username}@{parts.hostname}" if parts.username else str(parts.hostname)
    remote = parts.path if len(parts.path) > 1 else _REMOTE_SOCKET
    port = ["-p", str(parts.port)] if parts.port else []
    chosen = [word for option in options for word in ("-o", option)]
    return ["ssh", "-N", "-T", *chosen, *port, "-L", f"{socket}:{remote}", "--", login]


def _wait_for(daemon: Daemon, socket: Path, said: Path, running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not socket.is_socket():
        if running.poll() is not None or time.monotonic() > deadline:
            words = " ".join(said.read_text("utf-8", "replace").split())[-300:]
            raise NoDaemon(
                f"no Docker daemon is reached through {daemon.address} ({daemon.origin}): "
                + (words or f"no answer in {_LIMIT_S:g} s")
            )
        time.sleep(0.02)


@contextmanager
def daemon_client(daemon: Daemon, timeout_s: int = 60) -> Iterator[docker.DockerClient]:
    """Yield a client of the daemon; raises `NoDaemon`."""
    with reachable(daemon) as near:
        client = open_daemon(near, timeout_s)
        try:
            yield client
        finally:
            client.close()
