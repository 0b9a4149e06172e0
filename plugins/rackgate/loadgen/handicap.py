"""Spoils the instrument on purpose, to show that it is found out."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Protocol

__all__ = ["HANDICAPS", "spoil"]

HANDICAPS = ("", "slow", "die")
"""None; the event loop stands still for 40 of every 100 ms; the worker exits abruptly half-way."""

_BLOCKED_S = 0.04
_FREE_S = 0.06


class _Progress(Protocol):
    @property
    def share_done(self) -> float: ...


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
