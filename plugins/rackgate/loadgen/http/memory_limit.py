"""Memory limits of responses in flight: for each one, and for all of a worker together.

They protect the load generator from servers that never stop sending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from rackgate.nouns.load import Load

MAX_RESPONSE_BYTES = 64 << 20
"""The limit of one response, whatever number of tokens was requested."""

_BASE_BYTES = 1 << 20
_BYTES_PER_TOKEN = 16 << 10
"""A token's event takes some hundred bytes, with logprobs some thousand."""

MAX_TOTAL_BYTES = 1 << 30
_USUAL_BYTES_PER_TOKEN = 1 << 10


class OpenResponse(Protocol):
    """A response in flight."""

    body_bytes: int
    """Bytes received so far."""

    def abort_oversized(self, detail: str) -> None:
        """End it as malformed."""


class MemoryLimit:
    """Memory limits of a worker's responses; `used_bytes` is what those in flight have received so far."""

    __slots__ = ("_running", "per_response_bytes", "total_bytes", "used_bytes")

    def __init__(
        self,
        per_response_bytes: int = MAX_RESPONSE_BYTES,
        total_bytes: int = MAX_TOTAL_BYTES,
        running: Collection[OpenResponse] = (),
    ) -> None:
        self.per_response_bytes = per_response_bytes
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self._running = running

    @classmethod
    def of(
        cls, load: Load, longest: int | None, in_flight: int, running: Collection[OpenResponse]
    ) -> MemoryLimit:
        """Return the limits for a load with answers of at most `longest` tokens, None if that is not known.

        The total is never below what `in_flight` usual answers need.
        """
        each = MAX_RESPONSE_BYTES if longest is None else _BASE_BYTES + _BYTES_PER_TOKEN * longest
        usual = in_flight * (longest or 4 * load.output_tokens) * _USUAL_BYTES_PER_TOKEN
        return cls(min(each, MAX_RESPONSE_BYTES), max(MAX_TOTAL_BYTES, usual), running)

    def abort_largest(self) -> None:
        """Abort the response that has received most."""
        largest = max(self._running, key=lambda one: one.body_bytes, default=None)
        if largest is not None:
            together = f"more than {_mib(self.total_bytes)} in the responses in flight"
            largest.abort_oversized(f"{together}, the most in this one: {_mib(largest.body_bytes)}")

    @property
    def too_large(self) -> str:
        """The detail of a response that exceeds its limit."""
        return f"a response of more than {_mib(self.per_response_bytes)}"


def longest_output_tokens(load: Load, trace: Iterable[int]) -> int | None:
    """Return the most output tokens that a load requests, None if its lengths have no limit."""
    if load.trace is not None:
        return max((*trace, load.output_tokens))
    return load.output_tokens if load.output_spread is None else load.output_spread.most


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.4g} MiB"
