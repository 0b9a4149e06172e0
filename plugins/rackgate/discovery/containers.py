"""The containers that run on this machine, where a daemon lets itself be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rackgate.discovery.machine import Box
from rackgate.engines.launchers.containers.daemon import NoDaemon, choose_daemon, open_daemon

_LIMIT_S = 3


def find_boxes() -> tuple[tuple[Box, ...], str]:
    """Return the running containers of the daemon that `docker` would ask, and why there are none to see."""
    from docker.errors import DockerException

    try:
        daemon = choose_daemon()
        if not daemon.is_local:
            return (), f"the container daemon is {daemon.address}, on another machine: not asked"
        client = open_daemon(daemon, timeout_s=_LIMIT_S)
    except NoDaemon as error:
        return (), str(error)
    try:
        listed = client.api.containers()
    except (DockerException, OSError) as error:
        return (), f"the container daemon does not answer: {error}"
    finally:
        client.close()
    return tuple(_box(entry) for entry in listed), ""


def _box(entry: Mapping[str, Any]) -> Box:
    names = entry.get("Names") or [entry.get("Id", "")[:12]]
    ports = {int(one["PublicPort"]) for one in entry.get("Ports") or () if one.get("PublicPort")}
    image = str(entry.get("Image", ""))
    return Box(name=str(names[0]).lstrip("/"), image=image, ports=tuple(sorted(ports)))
