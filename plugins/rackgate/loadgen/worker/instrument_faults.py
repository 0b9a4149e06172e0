"""Deliberate faults of the load generator, by which tests prove that it measures its own error."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Protocol

from rackgate.loadgen.http.connection import Connection
from rackgate.loadgen.http.http1 import HttpClient
from rackgate.loadgen.http.transport import Server

WORKER_FAULTS = ("", "slow", "die", "late")
"""No fault; a loop blocked for 40 of every 100 ms; an exit half-way; reads stamped when they are parsed."""

_BLOCKED_S = 0.04
_FREE_S = 0.06


class _Progress(Protocol):
    @property
    def share_done(self) -> float: ...


class _LateStamps(Connection):
    """Stamps reads when they are parsed, as simpler clients do."""

    def process_reads(self) -> None:
        now_ns = perf_counter_ns()
        self._reads = [(now_ns, data) for _, data in self._reads]
        super().process_reads()


def client_factory(instrument_fault: str) -> Callable[[Server], HttpClient]:
    """Return the constructor of the transport to a server."""
    return partial(HttpClient, connection_class=_LateStamps) if instrument_fault == "late" else HttpClient


def inject_fault(instrument_fault: str, load: _Progress) -> None:
    """Inject a fault into the running loop."""
    if instrument_fault == "slow":
        asyncio.get_running_loop().call_later(_FREE_S, _block)
    elif instrument_fault == "die":
        _die_half_way(load)


def _block() -> None:
    time.sleep(_BLOCKED_S)
    asyncio.get_running_loop().call_later(_FREE_S, _block)


def _die_half_way(load: _Progress) -> None:
    if load.share_done >= 0.5:
        os._exit(70)
    asyncio.get_running_loop().call_later(0.005, _die_half_way, load)
