"""What a run that was killed left behind: found, named, and removed if it is surely ours.

A launch is written down before it can be forgotten: a process engine in a file of the user's state
folder, a container in its labels. A launch whose owner still lives is nobody's leftover.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackgate.engines.daemon import NoDaemon, local_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "LABEL_PREFIX",
    "TOKEN_VARIABLE",
    "Launch",
    "Leftover",
    "boot_id",
    "find_leftovers",
    "forget",
    "owner_labels",
    "process_start",
    "remember",
    "remove",
    "state_folder",
]

LABEL_PREFIX = "rackgate."
TOKEN_VARIABLE = "RACKGATE_LAUNCH"  # noqa: S105
"""Set in every engine's environment, so that orphans of a dead main process can be told apart."""
_KILL_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A process engine as written down: who started it, and which process group it is.

    A process is told apart by pid, start time (clock ticks since boot) and boot: a recycled pid never
    has all three. The command line is for people; engines rewrite theirs.
    """

    token: str
    engine: str
    run_id: str
    pid: int
    pid_start: int
    keeper: int
    keeper_start: int
    owner: int
    owner_start: int
    boot: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """An engine of a dead run. `kind` is `process` or `container`, `ident` a pid or a container's id."""

    kind: str
    ident: str
    engine: str
    run_id: str
    owner_pid: int
    detail: str
    path: str = ""


def state_folder() -> Path:
    """Return the folder of this user's launches: `$XDG_STATE_HOME/rackgate`, or `~/.local/state/rackgate`."""
    root = os.environ.get("XDG_STATE_HOME")
    folder = (Path(root) if root else Path.home() / ".local" / "state") / "rackgate" / "launches"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:  # a home that cannot be written to must not stop an acceptance
        folder = Path(tempfile.gettempdir()) / f"rackgate-{os.getuid()}" / "launches"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def process_start(pid: int) -> int:
    """Return the start time of a live process in clock ticks since boot, 0 if there is none."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else 0


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on, empty if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def boot_id() -> str:
    """Return what tells this boot of the machine from any other."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def remember(launch: Launch) -> Path:
    """Write a launch down; give the path to `forget` when it has ended."""
    path = state_folder() / f"{launch.token}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(launch)), encoding="utf-8")
    part.replace(path)
    return path


def forget(path: Path) -> None:
    """Strike a launch off."""
    path.unlink(missing_ok=True)


def owner_labels(run_id: str, engine: str, token: str) -> dict[str, str]:
    """Return the labels by which a container's owner is found again."""
    pid = os.getpid()
    return {
        f"{LABEL_PREFIX}run_id": run_id,
        f"{LABEL_PREFIX}engine": engine,
        f"{LABEL_PREFIX}launch": token,
        f"{LABEL_PREFIX}owner": str(os.getuid()),
        f"{LABEL_PREFIX}pid": str(pid),
        f"{LABEL_PREFIX}pid_start": str(process_start(pid)),
        f"{LABEL_PREFIX}boot": boot_id(),
        f"{LABEL_PREFIX}host": platform.node(),
    }


def find_leftovers() -> list[Leftover]:
    """Return the engines that this user's dead runs left on this machine; strikes off ended ones."""
    return [*_left_processes(), *_left_containers()]


def remove(leftover: Leftover) -> bool:
    """End a leftover after making sure again that it is what it was; return whether it is gone."""
    if leftover.kind == "container":
        return _remove_container(leftover.ident)
    path = Path(leftover.path)
    launch = _read(path)
    if launch is not None and _alive(launch.owner, launch.owner_start):
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


def _read(path: Path) -> Launch | None:
    try:
        return Launch(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _alive(pid: int, start: int) -> bool:
    return start != 0 and process_start(pid) == start


def _members(launch: Launch) -> list[int]:
    """Return the pids of the launch's process group, empty unless the group is surely ours."""
    session = [
        pid for pid in _pids() if (stat := _stat(pid)) and stat[0] not in "ZX" and stat[3] == str(launch.pid)
    ]
    if _alive(launch.pid, launch.pid_start):
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
        launch = _read(path)
        if launch is None:
            forget(path)
            continue
        same_boot = launch.boot == boot_id()
        owned = _alive(launch.owner, launch.owner_start) or _alive(launch.keeper, launch.keeper_start)
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


def _left_containers() -> list[Leftover]:
    try:
        client = local_daemon(timeout_s=10)
    except NoDaemon:
        return []
    from docker.errors import DockerException

    try:
        containers = client.api.containers(all=True, filters={"label": f"{LABEL_PREFIX}launch"})
    except (DockerException, OSError):
        return []
    finally:
        client.close()
    return [_container(entry) for entry in containers if _is_left(entry.get("Labels") or {})]


def _is_left(labels: dict[str, str]) -> bool:
    def label(name: str) -> str:
        return labels.get(f"{LABEL_PREFIX}{name}", "")

    if label("owner") != str(os.getuid()) or label("host") != platform.node():
        return False
    if label("boot") != boot_id():
        return True
    return not _alive(int(label("pid") or 0), int(label("pid_start") or 0))


def _container(entry: dict[str, Any]) -> Leftover:
    labels = entry["Labels"]
    return Leftover(
        kind="container",
        ident=entry["Id"],
        engine=labels.get(f"{LABEL_PREFIX}engine", ""),
        run_id=labels.get(f"{LABEL_PREFIX}run_id", ""),
        owner_pid=int(labels.get(f"{LABEL_PREFIX}pid") or 0),
        detail=f"container {entry['Id'][:12]} of image {entry.get('Image', '?')}, {entry.get('Status', '?')}",
    )


def _remove_container(ident: str) -> bool:
    try:
        client = local_daemon(timeout_s=30)
    except NoDaemon:
        return False
    from docker.errors import DockerException, NotFound

    try:
        client.api.remove_container(ident, force=True, v=True)
    except NotFound:
        return True
    except (DockerException, OSError):
        return False
    finally:
        client.close()
    return True
