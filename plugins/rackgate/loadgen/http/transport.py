"""What carries a request: the seam behind which a faster client can stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from rackgate.engines.protocols.answer import Ending
from rackgate.loadgen.http.head import Head
from rackgate.nouns.route import DIRECT, Route


class Exchange(Protocol):
    """One request under way."""

    def settle(self) -> None:
        """Pass on what has arrived so far and was put aside."""

    def abort(self, ending: Ending, detail: str = "") -> None:
        """End it at once; the sink is told."""


class Sink(Protocol):
    """Takes one response; `t_ns` is always the arrival of a read, however late it is passed on."""

    def on_sent(self, t_ns: int, exchange: Exchange, connecting_ns: int | None = None) -> None:
        """The first byte goes to the kernel; `connecting_ns` is when its connection was begun, if it was."""

    def on_byte(self, t_ns: int) -> None:
        """The response's first byte arrived."""

    def on_head(self, t_ns: int, head: Head) -> None:
        """Status and headers are known."""

    def on_body(self, reads: list[tuple[int, bytes]]) -> None:
        """Pieces of the body, each with its arrival."""

    def on_end(self, finish: Finish) -> None:
        """It is over; nothing more is told."""


class Finish(NamedTuple):
    """How and when the exchange ended."""

    ending: Ending
    t_ns: int
    detail: str = ""


class Transport(Protocol):
    """What carries requests to one server."""

    def send(self, request: bytes, sink: Sink, *, connect_s: float) -> None:
        """Send and tell the sink what comes, down to how it ended, whatever happens; never at once."""

    async def prepare(self, connections: int, *, connect_s: float) -> None:
        """Open that many connections ahead; failures are left to the requests."""

    def close(self) -> None:
        """Drop all connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where a URL points, and by which route: `prefix` is its path without a trailing slash."""

    host: str
    port: int
    secure: bool
    prefix: str
    route: Route = DIRECT

    @classmethod
    def of(cls, url: str, route: Route = DIRECT) -> Server:
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
            route=route,
        )

    @property
    def dialled(self) -> tuple[str, int]:
        """Host and port that connections are made to: the proxy's, if there is one."""
        if self.route.proxy is None:
            return self.host, self.port
        proxy = Server.of(self.route.proxy)
        return proxy.host, proxy.port

    def target(self, path: str) -> str:
        """Return what a request line asks for: a path, or for a proxy that reads requests the whole URL."""
        through = self.route.proxy is not None and not self.secure
        return f"http://{self.authority}{self.prefix}{path}" if through else f"{self.prefix}{path}"

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"
