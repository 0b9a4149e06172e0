"""Start barrier of a load's workers: each writes when it is ready, and all derive the same start."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns

from rackgate.loadgen.requests.plan import LoadPlan

START_DELAY_NS = 100_000_000
"""The time from the last worker's readiness to the start."""

_POLL_EVERY_S = 0.005
_MOMENT = struct.Struct("<q")


async def wait_for_start(plan: LoadPlan, stopped: Callable[[], bool]) -> int:
    """Return the common start of all workers: 100 ms after the last of them was ready.

    Each worker appends the moment of its readiness to one file; CLOCK_MONOTONIC is one clock for all
    processes of a machine. For workers on other machines the relay appends moments (`add_ready_moments`).
    Returns at once if the load is stopped, as the parent does when a worker has died.
    """
    descriptor = os.open(plan.start_file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, _MOMENT.pack(perf_counter_ns()))
        while not stopped():
            data = os.pread(descriptor, _MOMENT.size * plan.workers, 0)
            if len(data) == _MOMENT.size * plan.workers:
                return max(int(moment) for (moment,) in _MOMENT.iter_unpack(data)) + START_DELAY_NS
            await asyncio.sleep(_POLL_EVERY_S)
    finally:
        os.close(descriptor)
    return perf_counter_ns()


def ready_moments(start_file: Path) -> list[int]:
    """Return the moments at which workers were ready, in ns."""
    try:
        data = start_file.read_bytes()
    except FileNotFoundError:
        return []
    return [moment for (moment,) in _MOMENT.iter_unpack(data[: len(data) - len(data) % _MOMENT.size])]


def add_ready_moments(start_file: Path, moments_ns: Sequence[int]) -> None:
    """Append moments of workers on other machines in one call, so that a reader never sees half."""
    with start_file.open("ab", buffering=0) as file:
        file.write(b"".join(_MOMENT.pack(moment) for moment in moments_ns))
