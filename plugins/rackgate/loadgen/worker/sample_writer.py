"""Makes the samples of finished requests between reads, and counts their outcomes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns

from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.worker.attempt import Attempt
from rackgate.loadgen.worker.sample_row import sample_row
from rackgate.loadgen.worker.spool import Row, field_index, row_lines, row_of_sample
from rackgate.nouns.sample import Sample

_DELAY_S = 0.002
SLICE_NS = 50_000
"""Time for samples per turn of the loop: an arrival waits for this and one sample at most."""

QUEUE_SHARE = 1 / 64
"""The least share of the queue per turn, so that the queue stays bounded."""

ROWS_PER_WRITE = 16

_OUTCOME, _DONE_NS = field_index("outcome"), field_index("done_ns")


class SampleWriter:
    """Queue of finished requests whose samples are not made yet. `write` receives one or more whole lines."""

    def __init__(self, plan: LoadPlan, write: Callable[[bytes], object]) -> None:
        self._load_label_look = plan.load.name, plan.label, plan.look
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[Attempt, bool]] = deque()
        self._rows: list[Row] = []
        self._scheduled = False
        self.outcomes: dict[str, int] = {}
        self.end_ns = 0

    def add(self, attempt: Attempt, *, warmup: bool) -> None:
        """Queue a finished request."""
        self._queue.append((attempt, warmup))
        if not self._scheduled:
            self._schedule()

    def add_sample(self, sample: Sample) -> None:
        """Queue a sample that is made already."""
        self._rows.append(row_of_sample(sample))
        if not self._scheduled:
            self._schedule()

    def finish(self) -> None:
        """Make and write all samples that are left."""
        while self._queue:
            self._make_sample()
        self._flush()

    def _make_some(self) -> None:
        """Make a few samples, then let the loop read other streams first."""
        if len(self._rows) >= ROWS_PER_WRITE:
            self._flush()
        least = round(len(self._queue) * QUEUE_SHARE)
        until_ns = perf_counter_ns() + SLICE_NS
        while self._queue and (perf_counter_ns() < until_ns or least > 0):
            least -= 1
            self._make_sample()
        if self._queue:
            self._loop.call_soon(self._make_some)
        else:
            self._scheduled = False
            self._flush()

    def _make_sample(self) -> None:
        attempt, warmup = self._queue.popleft()
        row = sample_row(attempt, self._load_label_look, warmup=warmup)
        if not warmup:
            outcome = row[_OUTCOME]
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
            done_ns = row[_DONE_NS]
            if done_ns is not None and done_ns > self.end_ns:
                self.end_ns = done_ns
        self._rows.append(row)

    def _schedule(self) -> None:
        self._scheduled = True
        self._loop.call_later(_DELAY_S, self._make_some)

    def _flush(self) -> None:
        if self._rows:
            self._write(row_lines(self._rows))
            self._rows.clear()
