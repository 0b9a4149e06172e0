"""Makes the samples of requests that have ended, when there is time for it, and counts their outcomes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from rackgate.loadgen.spool import place_of, row_line, spool_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from rackgate.loadgen.attempt import Attempt
    from rackgate.loadgen.plan import Plan
    from rackgate.sample import Sample

__all__ = ["Conclusions"]

AFTER_S = 0.002
READS_AT_ONCE = 12
"""So many reads, of some requests or of one, are understood per turn of the loop: arrivals wait no longer."""

SHARE_AT_ONCE = 1 / 16
"""Of a queue that grows more is made per turn, so that it ends somewhere."""

LINES_AT_ONCE = 64


_OUTCOME, _DONE_NS = place_of("outcome"), place_of("done_ns")


class Conclusions:
    """What has ended and is not yet a sample. `write` takes whole lines, one or more at a time."""

    def __init__(self, plan: Plan, write: Callable[[bytes], object]) -> None:
        self._belongs = plan.load.name, plan.label, plan.look
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[Attempt, bool]] = deque()
        self._lines: list[bytes] = []
        self._scheduled = False
        self.outcomes: dict[str, int] = {}
        self.end_ns = 0

    def add(self, attempt: Attempt, *, warmup: bool) -> None:
        """Take a request that has ended."""
        self._queue.append((attempt, warmup))
        self._schedule()

    def keep(self, sample: Sample) -> None:
        """Take a sample that is made already."""
        self._line(spool_line(sample))
        self._schedule()

    def finish(self) -> None:
        """Make all that are left."""
        while self._queue:
            self._conclude()
        self._flush()

    def _next(self) -> None:
        """Make a few samples per turn of the loop: reads of other streams come first."""
        least, reads = round(len(self._queue) * SHARE_AT_ONCE), 0
        while self._queue and (reads < READS_AT_ONCE or least > 0):
            reads += self._queue[0][0].unread
            reads += 1
            least -= 1
            self._conclude()
        if self._queue:
            self._loop.call_soon(self._next)
        else:
            self._scheduled = False
            self._flush()

    def _conclude(self) -> None:
        attempt, warmup = self._queue.popleft()
        row = attempt.row(self._belongs, warmup=warmup)
        if not warmup:
            outcome = row[_OUTCOME]
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
            self.end_ns = max(self.end_ns, row[_DONE_NS] or 0)
        self._line(row_line(row))

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(AFTER_S, self._next)

    def _line(self, line: bytes) -> None:
        self._lines.append(line)
        if len(self._lines) >= LINES_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._lines:
            self._write(b"".join(self._lines))
            self._lines.clear()
