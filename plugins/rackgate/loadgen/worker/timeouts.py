"""Looks at the limits of what is in flight: one coarse sweep for all requests, no timer for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection
from time import perf_counter_ns

from rackgate.loadgen.worker.attempt import Attempt

EVERY_S = 0.05


class Watch:
    """Sweeps over `running` every 50 ms; one is looked at per turn of the loop, for reads come first."""

    def __init__(self, running: Collection[Attempt]) -> None:
        self._loop = asyncio.get_running_loop()
        self._running = running
        self._due: deque[Attempt] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin."""
        self._timer = self._loop.call_later(EVERY_S, self._sweep)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()
        self._due.clear()

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(EVERY_S, self._sweep)
        if not self._due:
            now_ns = perf_counter_ns()
            self._due.extend([attempt for attempt in self._running if attempt.look_ns <= now_ns])
            if self._due:
                self._look()

    def _look(self) -> None:
        now_ns = perf_counter_ns()
        if self._due:
            self._due.popleft().look(now_ns)
        if self._due:
            self._loop.call_soon(self._look)
