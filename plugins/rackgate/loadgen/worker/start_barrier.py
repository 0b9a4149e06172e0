"""How the workers of one load begin at the same moment: each says when it is ready, all do the same sum."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns

from rackgate.loadgen.requests.plan import Plan

AHEAD_NS = 100_000_000
"""The workers begin so long after the last of them was ready."""

_LOOK_EVERY_S = 0.005
_MOMENT = struct.Struct("<q")


async def meet(plan: Plan, stopped: Callable[[], bool]) -> int:
    """Return the moment at which all workers begin: 100 ms after the last of them was ready.

    Each appends its moment to one file; CLOCK_MONOTONIC is one clock for all processes of a machine. For
    workers on other machines whoever reaches them all appends a moment each (`place_moments`).
    Returns at once if the load is stopped, as it is by the parent when a worker is gone.
    """
    descriptor = os.open(plan.meeting, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, _MOMENT.pack(perf_counter_ns()))
        while not stopped():
            said = os.pread(descriptor, _MOMENT.size * plan.workers, 0)
            if len(said) == _MOMENT.size * plan.workers:
                return max(int(moment) for (moment,) in _MOMENT.iter_unpack(said)) + AHEAD_NS
            await asyncio.sleep(_LOOK_EVERY_S)
    finally:
        os.close(descriptor)
    return perf_counter_ns()


def moments_in(meeting: Path) -> list[int]:
    """Return the moments of the workers that are ready, in ns."""
    try:
        said = meeting.read_bytes()
    except FileNotFoundError:
        return []
    return [moment for (moment,) in _MOMENT.iter_unpack(said[: len(said) - len(said) % _MOMENT.size])]


def place_moments(meeting: Path, moments_ns: Sequence[int]) -> None:
    """Append moments at which workers elsewhere were ready: one call, so that a reader never sees half."""
    with meeting.open("ab", buffering=0) as file:
        file.write(b"".join(_MOMENT.pack(moment) for moment in moments_ns))
