"""What carries a request: the seam behind which a faster client can stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

    from rackgate.engines.protocol import Ending

__all__ = ["Finish", "Server", "Sink", "Transport"]


class Sink(Protocol):
    """Takes one response as it arrives; `t_ns` is always the arrival of the read."""

    def on_sent(self, t_ns: int, abort: Callable[[Ending, str], None]) -> None:
        """The first byte goes to the kernel; `abort` ends the exchange at once."""

    def on_head(self, t_ns: int, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Status and headers (names in lower case) are known."""

    def on_body(self, t_ns: int, data: bytes) -> None:
        """A piece of the body."""

    def on_byte(self, t_ns: int) -> None:
        """The response's first byte arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """How and when the exchange ended; `retried` says that a stale connection was replaced."""

    ending: Ending
    t_ns: int
    detail: str = ""
    retried: bool = False


class Transport(Protocol):
    """What carries requests to one server."""

    async def exchange(self, request: bytes, sink: Sink, *, connect_s: float) -> Finish:
        """Send and return when the response has ended, whatever happened; raises only on cancellation."""

    async def prepare(self, connections: int, *, connect_s: float) -> None:
        """Open that many connections ahead; failures are left to the requests."""

    def close(self) -> None:
        """Drop all connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where a URL points: `prefix` is its path without a trailing slash."""

    host: str
    port: int
    secure: bool
    prefix: str

    @classmethod
    def of(cls, url: str) -> Server:
        """Return the server of an http or https URL. Raises `ValueError`."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no http or https URL")
        secure = parts.scheme == "https"
        return cls(
            host=parts.hostname,
            port=parts.port or (443 if secure else 80),
            secure=secure,
            prefix=parts.path.rstrip("/"),
        )

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"
