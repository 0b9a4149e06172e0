"""The Docker daemon of this machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import docker

__all__ = ["NoDaemon", "choose_reaper", "daemon_address", "local_daemon", "remove_labelled"]


class NoDaemon(Exception):
    """No Docker daemon of this machine answers; the message says what was tried."""


def daemon_address(wanted: str | None = None) -> str:
    """Return the daemon's address: the one wanted, else `DOCKER_HOST`, else the usual socket.

    Raises `NoDaemon` if it is not a socket of this machine.
    """
    address = wanted or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if not address.startswith("unix://"):
        raise NoDaemon(f"{address} is not this machine's Docker daemon")
    # Looked at first: a client that cannot connect leaves its socket open.
    if not Path(address.removeprefix("unix://")).is_socket():
        raise NoDaemon(f"no Docker daemon answers: there is no socket {address.removeprefix('unix://')}")
    return address


def local_daemon(wanted: str | None = None, timeout_s: int = 60) -> docker.DockerClient:
    """Return a client of the daemon, to be closed; raises `NoDaemon`."""
    address = daemon_address(wanted)
    import docker

    try:
        return docker.from_env(timeout=timeout_s, environment={"DOCKER_HOST": address})
    except docker.errors.DockerException as error:
        raise NoDaemon(f"no Docker daemon answers at {address}: {error}") from error


def choose_reaper(client: docker.DockerClient) -> None:
    """Let testcontainers use its reaper only if its image is here: nothing is downloaded at run time."""
    from docker.errors import DockerException
    from testcontainers.core.config import testcontainers_config

    try:
        client.images.get(testcontainers_config.ryuk_image)
    except DockerException:
        testcontainers_config.ryuk_disabled = True


def remove_labelled(client: docker.DockerClient, label: str) -> None:
    """Remove every container that has the label, running or not."""
    from docker.errors import APIError

    for entry in client.api.containers(all=True, filters={"label": label}):
        with suppress(APIError):  # it is being removed already
            client.api.remove_container(entry["Id"], force=True, v=True)
