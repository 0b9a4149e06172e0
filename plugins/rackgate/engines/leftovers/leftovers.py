"""What a run that was killed left behind: found, named, and removed if it is surely ours.

A launch is written down before it can be forgotten: a process engine in a file of the user's state
folder, a container in its labels. A launch whose owner still lives is nobody's leftover.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackgate.engines.launch_records import (
    LABEL_PREFIX,
    TOKEN_VARIABLE,
    Launch,
    boot_id,
    forget,
    is_alive,
    process_fields,
    read_launch,
    state_folder,
)
from rackgate.engines.launchers.containers.daemon import Daemon, NoDaemon, choose_daemon
from rackgate.engines.launchers.containers.tunnel import daemon_client

if TYPE_CHECKING:
    import docker


_KILL_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """What a dead run left. `kind` is `process`, `container`, `network` or `volume`.

    `ident` is a pid or the daemon's id of it; `daemon` is where it is, None for this machine's processes.
    """

    kind: str
    ident: str
    engine: str
    run_id: str
    owner_pid: int
    detail: str
    path: str = ""
    daemon: Daemon | None = None


def find_leftovers(daemons: Iterable[Daemon] | None = None) -> list[Leftover]:
    """Return what this user's dead runs left; strikes off engines that have ended.

    Looks at this machine's processes and at the daemons, or at the one that is meant without being named.
    A daemon that does not answer has nothing to tell. Containers come before their networks and volumes.
    """
    if daemons is None:
        try:
            daemons = [choose_daemon()]
        except NoDaemon:
            daemons = []
    return [*_left_processes(), *(left for daemon in daemons for left in _left_on(daemon))]


def remove(leftover: Leftover) -> bool:
    """End a leftover after making sure again that it is what it was; return whether it is gone."""
    if leftover.daemon is not None:
        return _remove_from(leftover.daemon, leftover)
    path = Path(leftover.path)
    launch = read_launch(path)
    if launch is not None and is_alive(launch.owner, launch.owner_start):
        return False
    if launch is not None and launch.boot == boot_id():
        deadline = time.monotonic() + _KILL_LIMIT_S
        while members := _members(launch):
            for pid in members:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
    forget(path)
    return True


def _members(launch: Launch) -> list[int]:
    """Return the pids of the launch's process group, empty unless the group is surely ours."""
    session = [
        pid
        for pid in _pids()
        if (stat := process_fields(pid)) and stat[0] not in "ZX" and stat[3] == str(launch.pid)
    ]
    if is_alive(launch.pid, launch.pid_start):
        return session
    # The main process is gone. Its number cannot be recycled while its session has members; whether
    # these are the same members as then, only the token in their environment can say.
    return session if any(_has_token(pid, launch.token) for pid in session) else []


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _has_token(pid: int, token: str) -> bool:
    try:
        return f"{TOKEN_VARIABLE}={token}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _left_processes() -> Iterator[Leftover]:
    for path in sorted(state_folder().glob("*.json")):
        launch = read_launch(path)
        if launch is None:
            forget(path)
            continue
        same_boot = launch.boot == boot_id()
        owned = is_alive(launch.owner, launch.owner_start) or is_alive(launch.keeper, launch.keeper_start)
        if same_boot and owned:
            continue
        members = _members(launch) if same_boot else []
        if not members:
            forget(path)
            continue
        yield Leftover(
            kind="process",
            ident=str(launch.pid),
            engine=launch.engine,
            run_id=launch.run_id,
            owner_pid=launch.owner,
            detail=f"{len(members)} process{'es' * (len(members) > 1)} of `{launch.command}`",
            path=str(path),
        )


def _left_on(daemon: Daemon) -> list[Leftover]:
    from docker.errors import DockerException

    label = {"label": f"{LABEL_PREFIX}launch"}
    try:
        with daemon_client(daemon, timeout_s=10) as client:
            return [left for left, labels in _labelled(client, label, daemon) if is_left(labels)]
    except (NoDaemon, DockerException, OSError):
        return []


def _labelled(
    client: docker.DockerClient, label: dict[str, str], daemon: Daemon
) -> list[tuple[Leftover, dict[str, str]]]:
    found = [_container(entry, daemon) for entry in client.api.containers(all=True, filters=label)]
    networks = client.api.networks(filters=label)
    volumes = client.api.volumes(filters=label).get("Volumes") or []
    found += [_thing("network", entry["Id"], entry, daemon) for entry in networks]
    return found + [_thing("volume", entry["Name"], entry, daemon) for entry in volumes]


def is_left(labels: dict[str, str]) -> bool:
    """Return whether these labels are of this user's dead run on this machine."""

    def label(name: str) -> str:
        return labels.get(f"{LABEL_PREFIX}{name}", "")

    if label("owner") != str(os.getuid()) or label("host") != platform.node():
        return False
    if label("boot") != boot_id():
        return True
    return not is_alive(int(label("pid") or 0), int(label("pid_start") or 0))


def _container(entry: dict[str, Any], daemon: Daemon) -> tuple[Leftover, dict[str, str]]:
    labels = entry.get("Labels") or {}
    image = labels.get(f"{LABEL_PREFIX}image", entry.get("Image", "?"))
    detail = f"container {entry['Id'][:12]} of image {image}, {entry.get('Status', '?')}"
    return _left("container", entry["Id"], detail, labels, daemon), labels


def _thing(kind: str, ident: str, entry: dict[str, Any], daemon: Daemon) -> tuple[Leftover, dict[str, str]]:
    labels = entry.get("Labels") or {}
    return _left(kind, ident, f"{kind} {entry.get('Name', ident)}", labels, daemon), labels


def _left(kind: str, ident: str, detail: str, labels: dict[str, str], daemon: Daemon) -> Leftover:
    where = "" if daemon.is_local else f" on {daemon.host}"
    return Leftover(
        kind=kind,
        ident=ident,
        engine=labels.get(f"{LABEL_PREFIX}engine", ""),
        run_id=labels.get(f"{LABEL_PREFIX}run_id", ""),
        owner_pid=int(labels.get(f"{LABEL_PREFIX}pid") or 0),
        detail=detail + where,
        daemon=daemon,
    )


def _remove_from(daemon: Daemon, leftover: Leftover) -> bool:
    from docker.errors import DockerException, NotFound

    try:
        with daemon_client(daemon, timeout_s=30) as client:
            _remove_thing(client, leftover)
    except NotFound:
        return True
    except (NoDaemon, DockerException, OSError):
        return False
    return True


def _remove_thing(client: docker.DockerClient, leftover: Leftover) -> None:
    if leftover.kind == "container":
        client.api.remove_container(leftover.ident, force=True, v=True)
    elif leftover.kind == "network":
        client.api.remove_network(leftover.ident)
    else:
        client.api.remove_volume(leftover.ident)
