"""How much responses may bring: one by itself, and all that are in flight in a worker together.

A server that never stops sending must not fill the memory, and neither must five hundred of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from rackgate.nouns.load import Load

MOST_BYTES = 64 << 20
"""No response is longer than this, however many tokens were asked for."""

_LEAST_BYTES = 1 << 20
_BYTES_PER_TOKEN = 16 << 10
"""A token in an event of its own takes some hundred bytes; with its alternatives some thousand."""

ALL_BYTES = 1 << 30
_USUAL_BYTES_PER_TOKEN = 1 << 10


class Holder(Protocol):
    """A response on its way."""

    body_bytes: int
    """How much of it came."""

    def too_much(self, detail: str) -> None:
        """End it as malformed."""


class Room:
    """What the responses of one worker may take; `taken` is what those in flight have brought."""

    __slots__ = ("_running", "all_bytes", "each_bytes", "taken")

    def __init__(
        self, each_bytes: int = MOST_BYTES, all_bytes: int = ALL_BYTES, running: Collection[Holder] = ()
    ) -> None:
        self.each_bytes = each_bytes
        self.all_bytes = all_bytes
        self.taken = 0
        self._running = running

    @classmethod
    def of(cls, load: Load, longest: int | None, in_flight: int, running: Collection[Holder]) -> Room:
        """Return the room for a load with answers of at most `longest` tokens; None is not known.

        What so many honest answers may take together is always there.
        """
        each = MOST_BYTES if longest is None else _LEAST_BYTES + _BYTES_PER_TOKEN * longest
        usual = in_flight * (longest or 4 * load.output_tokens) * _USUAL_BYTES_PER_TOKEN
        return cls(min(each, MOST_BYTES), max(ALL_BYTES, usual), running)

    def relieve(self) -> None:
        """End the response that has brought most of all."""
        largest = max(self._running, key=lambda one: one.body_bytes, default=None)
        if largest is not None:
            together = f"more than {_mib(self.all_bytes)} in the responses in flight"
            largest.too_much(f"{together}, the most in this one: {_mib(largest.body_bytes)}")

    @property
    def too_long(self) -> str:
        """Why a response is ended that has brought more than it may."""
        return f"a response of more than {_mib(self.each_bytes)}"


def longest_output(load: Load, trace: Iterable[int]) -> int | None:
    """Return the most tokens that a load asks for; None where its lengths have no limit."""
    if load.trace is not None:
        return max((*trace, load.output_tokens))
    return load.output_tokens if load.output_spread is None else load.output_spread.most


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.4g} MiB"
