"""Launches of engines as they are written down, and how a process is told from any other."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

LABEL_PREFIX = "rackgate."
TOKEN_VARIABLE = "RACKGATE_LAUNCH"  # noqa: S105
"""Set in every engine's environment, so that orphans of a dead main process can be told apart."""


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
    fields = process_fields(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else 0


def process_fields(pid: int) -> list[str]:
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


def read_launch(path: Path) -> Launch | None:
    """Return a launch as it was written down; None if the file is gone or torn."""
    try:
        return Launch(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def is_alive(pid: int, start: int) -> bool:
    """Return whether that very process still lives."""
    return start != 0 and process_start(pid) == start
