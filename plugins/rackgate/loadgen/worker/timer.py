"""Wakes an event loop at absolute moments of the monotonic clock, finer than its own timers.

The timers of epoll and of libuv are rounded to whole milliseconds, which is as large as the schedule
lag that the instrument is allowed. Linux's timerfd has no such grain.
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


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarm:
    """Waits for absolute moments, one waiter at a time; a loop timer where there is no timerfd."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._awake = False
        self._descriptor = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._descriptor = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._fired)

    async def until(self, t_ns: int) -> None:
        """Return at `t_ns`, at once if that is past or after `wake`."""
        while not self._awake and (left_ns := t_ns - perf_counter_ns()) > 0:  # a loop's timer may ring early
            self._waiter = self._loop.create_future()
            if self._descriptor < 0 or not self._set(t_ns):
                self._loop.call_later(left_ns / 1e9, self._ring, self._waiter)
            await self._waiter

    def wake(self) -> None:
        """Let whoever waits return now, and nobody wait again."""
        self._awake = True
        if self._waiter is not None:
            self._ring(self._waiter)

    def close(self) -> None:
        """Give the descriptor back."""
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
            self._ring(self._waiter)

    @staticmethod
    def _ring(waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)
