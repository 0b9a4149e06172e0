"""Timing of the event loop: an absolute high-resolution timer, and a monitor of the loop's lag.

The timers of epoll and libuv have a resolution of 1 ms, as large as the accepted schedule lag. Linux's
timerfd is finer.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from time import perf_counter_ns

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
_ABSOLUTE = 1

_INTERVAL_NS = 10_000_000
_BUCKET_NS = 100_000
_BUCKETS = 20_000


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class AbsoluteTimer:
    """Absolute timer for one waiter on an asyncio loop: timerfd, or a loop timer where there is none."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._cancelled = False
        self._descriptor = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._descriptor = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._fired)

    async def until(self, t_ns: int) -> None:
        """Return at `t_ns`, or at once if that is past or the timer was cancelled."""
        while not self._cancelled and (left_ns := t_ns - perf_counter_ns()) > 0:  # a loop timer may be early
            self._waiter = self._loop.create_future()
            if self._descriptor < 0 or not self._set(t_ns):
                self._loop.call_later(left_ns / 1e9, self._wake, self._waiter)
            await self._waiter

    def cancel(self) -> None:
        """Wake the waiter now and let no one wait again."""
        self._cancelled = True
        if self._waiter is not None:
            self._wake(self._waiter)

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _set(self, t_ns: int) -> bool:
        moment = _Itimerspec()
        moment.value.seconds, moment.value.nanoseconds = divmod(t_ns, 1_000_000_000)
        return bool(self._libc.timerfd_settime(self._descriptor, _ABSOLUTE, ctypes.byref(moment), None) == 0)

    def _fired(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            return
        if self._waiter is not None:
            self._wake(self._waiter)

    @staticmethod
    def _wake(waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)


class LoopLagMonitor:
    """Histogram of the event loop's lag, measured every 10 ms in buckets of 0.1 ms up to 2 s.

    The lag is the error of every arrival that the loop stamps.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._counts = [0] * _BUCKETS
        self._due_ns = 0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start measuring."""
        self._due_ns = perf_counter_ns() + _INTERVAL_NS
        self._wait()

    def stop(self) -> None:
        """Stop measuring and keep the counts."""
        if self._handle is not None:
            self._handle.cancel()

    def lag_ms(self, quantile: float) -> float | None:
        """Return a quantile of the lag in ms, rounded up to 0.1; None before the first measurement."""
        total = sum(self._counts)
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if total and seen >= quantile * total:
                return (bucket + 1) * _BUCKET_NS / 1e6
        return None

    def _wait(self) -> None:
        self._handle = self._loop.call_later(max(0, self._due_ns - perf_counter_ns()) / 1e9, self._measure)

    def _measure(self) -> None:
        self._count(max(0, perf_counter_ns() - self._due_ns))
        # Measurements that a blocked loop missed were late too, each by what was left of the block.
        self._due_ns += _INTERVAL_NS
        while (late_ns := perf_counter_ns() - self._due_ns) > 0:
            self._count(late_ns)
            self._due_ns += _INTERVAL_NS
        self._wait()

    def _count(self, late_ns: int) -> None:
        self._counts[min(late_ns // _BUCKET_NS, _BUCKETS - 1)] += 1
