"""Spoils the instrument on purpose, to show that it is found out."""

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

HANDICAPS = ("", "slow", "die", "late")
"""None; the event loop stands still for 40 of every 100 ms; the worker exits abruptly half-way; what arrives
is stamped when it is understood."""

_BLOCKED_S = 0.04
_FREE_S = 0.06


class _Progress(Protocol):
    @property
    def share_done(self) -> float: ...


class _Late(Connection):
    """Stamps reads when they are understood, as a client does that parses first."""

    def advance(self) -> None:
        """Take what was put aside."""
        now_ns = perf_counter_ns()
        self._reads = [(now_ns, data) for _, data in self._reads]
        super().advance()


def client_of(handicap: str) -> Callable[[Server], HttpClient]:
    """Return what makes the transport to a server."""
    return partial(HttpClient, kind=_Late) if handicap == "late" else HttpClient


def spoil(handicap: str, offer: _Progress) -> None:
    """Apply a handicap to the running loop."""
    if handicap == "slow":
        asyncio.get_running_loop().call_later(_FREE_S, _block)
    elif handicap == "die":
        _die_half_way(offer)


def _block() -> None:
    time.sleep(_BLOCKED_S)
    asyncio.get_running_loop().call_later(_FREE_S, _block)


def _die_half_way(offer: _Progress) -> None:
    if offer.share_done >= 0.5:
        os._exit(70)
    asyncio.get_running_loop().call_later(0.005, _die_half_way, offer)
