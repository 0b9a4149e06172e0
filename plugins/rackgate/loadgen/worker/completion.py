"""Makes the samples of requests that have ended, when there is time for it, and counts their outcomes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns

from rackgate.loadgen.requests.plan import Plan
from rackgate.loadgen.worker.attempt import Attempt
from rackgate.loadgen.worker.sampling import row_of
from rackgate.loadgen.worker.spool import Row, place_of, row_lines, row_of_sample
from rackgate.nouns.sample import Sample

AFTER_S = 0.002
SLICE_NS = 50_000
"""For so long samples are made per turn of the loop: arrivals wait no longer than for this and one sample."""

SHARE_AT_ONCE = 1 / 64
"""Of a queue that grows more is made per turn, so that it ends somewhere."""

ROWS_AT_ONCE = 16

_OUTCOME, _DONE_NS = place_of("outcome"), place_of("done_ns")


class Conclusions:
    """What has ended and is not yet a sample. `write` takes whole lines, one or more at a time."""

    def __init__(self, plan: Plan, write: Callable[[bytes], object]) -> None:
        self._belongs = plan.load.name, plan.label, plan.look
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[Attempt, bool]] = deque()
        self._rows: list[Row] = []
        self._scheduled = False
        self.outcomes: dict[str, int] = {}
        self.end_ns = 0

    def add(self, attempt: Attempt, *, warmup: bool) -> None:
        """Take a request that has ended."""
        self._queue.append((attempt, warmup))
        if not self._scheduled:
            self._schedule()

    def keep(self, sample: Sample) -> None:
        """Take a sample that is made already."""
        self._rows.append(row_of_sample(sample))
        if not self._scheduled:
            self._schedule()

    def finish(self) -> None:
        """Make all that are left."""
        while self._queue:
            self._conclude()
        self._flush()

    def _next(self) -> None:
        """Make a few samples per turn of the loop: reads of other streams come first."""
        if len(self._rows) >= ROWS_AT_ONCE:
            self._flush()
        least = round(len(self._queue) * SHARE_AT_ONCE)
        until_ns = perf_counter_ns() + SLICE_NS
        while self._queue and (perf_counter_ns() < until_ns or least > 0):
            least -= 1
            self._conclude()
        if self._queue:
            self._loop.call_soon(self._next)
        else:
            self._scheduled = False
            self._flush()

    def _conclude(self) -> None:
        attempt, warmup = self._queue.popleft()
        row = row_of(attempt, self._belongs, warmup=warmup)
        if not warmup:
            outcome = row[_OUTCOME]
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
            done_ns = row[_DONE_NS]
            if done_ns is not None and done_ns > self.end_ns:
                self.end_ns = done_ns
        self._rows.append(row)

    def _schedule(self) -> None:
        self._scheduled = True
        self._loop.call_later(AFTER_S, self._next)

    def _flush(self) -> None:
        if self._rows:
            self._write(row_lines(self._rows))
            self._rows.clear()
