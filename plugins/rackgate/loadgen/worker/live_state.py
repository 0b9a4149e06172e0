"""Where a load stands while it runs: written by the worker into one small file, read by whoever waits."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

NOW_EVERY_S = 0.5
_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """Counts of a running load, warm-up excluded; `start_ns` is 0 until warm-up is over."""

    t_ns: int
    start_ns: int
    scheduled: int
    started: int
    dropped: int
    in_flight: int
    share_done: float


def now_path(spool: Path) -> Path:
    """Return where the worker of a spool says where it stands."""
    return spool.with_name(f"{spool.name}.now")


def write_now(descriptor: int, now: Now) -> None:
    """Write over what was said before: one call, so that a reader never sees half of it."""
    os.pwrite(descriptor, json.dumps(asdict(now)).encode().ljust(_BYTES), 0)


def read_now(path: Path) -> Now | None:
    """Return what was said last, None before the first time."""
    try:
        return Now(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
