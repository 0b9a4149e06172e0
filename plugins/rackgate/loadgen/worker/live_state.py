"""Live counts of a running load: written by the worker into one small file, read by its parent."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

WRITE_EVERY_S = 0.5
_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """Counts of a running load, warm-up excluded; `start_ns` is 0 until warm-up is over."""

    t_ns: int
    start_ns: int
    scheduled: int
    started: int
    dropped: int
    in_flight: int
    share_done: float


def live_state_path(spool: Path) -> Path:
    """Return the path of the live state that belongs to a spool."""
    return spool.with_name(f"{spool.name}.now")


def write_live_state(descriptor: int, state: LiveState) -> None:
    """Overwrite the live state in one call, so that a reader never sees half of it."""
    os.pwrite(descriptor, json.dumps(asdict(state)).encode().ljust(_BYTES), 0)


def read_live_state(path: Path) -> LiveState | None:
    """Return the last live state, None before the first."""
    try:
        return LiveState(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
