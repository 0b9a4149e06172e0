"""How late the load generator's own event loop is: the error of every arrival that it stamps."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns

_EVERY_NS = 10_000_000
_BUCKET_NS = 100_000
_BUCKETS = 20_000


class Heartbeat:
    """Wakes every 10 ms at absolute moments and counts its lateness in buckets of 0.1 ms, up to 2 s."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._counts = [0] * _BUCKETS
        self._due_ns = 0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin."""
        self._due_ns = perf_counter_ns() + _EVERY_NS
        self._wait()

    def stop(self) -> None:
        """End; what was counted stays."""
        if self._handle is not None:
            self._handle.cancel()

    def late_ms(self, quantile: float) -> float | None:
        """Return a quantile of the lateness in ms, rounded up to 0.1; None if it never beat."""
        total = sum(self._counts)
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if total and seen >= quantile * total:
                return (bucket + 1) * _BUCKET_NS / 1e6
        return None

    def _wait(self) -> None:
        self._handle = self._loop.call_later(max(0, self._due_ns - perf_counter_ns()) / 1e9, self._beat)

    def _beat(self) -> None:
        late_ns = max(0, perf_counter_ns() - self._due_ns)
        self._counts[min(late_ns // _BUCKET_NS, _BUCKETS - 1)] += 1
        # Beats that a standstill swallowed were late too, each by what was left of it.
        self._due_ns += _EVERY_NS
        while self._due_ns < perf_counter_ns():
            left_ns = perf_counter_ns() - self._due_ns
            self._counts[min(left_ns // _BUCKET_NS, _BUCKETS - 1)] += 1
            self._due_ns += _EVERY_NS
        self._wait()
