"""The interface between the load generator and its HTTP client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from rackgate.engines.protocols.answer import Ending
from rackgate.loadgen.http.head import Head
from rackgate.nouns.route import DIRECT, Route


class Exchange(Protocol):
    """One request in flight."""

    def process_reads(self) -> None:
        """Parse the reads that are buffered and pass them to the sink."""

    def abort(self, ending: Ending, detail: str = "") -> None:
        """End it at once and call the sink's `on_end`."""


class Sink(Protocol):
    """Receives one response; `t_ns` is always the arrival of a read, however late it is passed on."""

    def on_sent(self, t_ns: int, exchange: Exchange, connecting_ns: int | None = None) -> None:
        """Called before the first byte is written; `connecting_ns` is the start of connecting, if any."""

    def on_byte(self, t_ns: int) -> None:
        """Called with the arrival of the response's first byte."""

    def on_head(self, t_ns: int, head: Head) -> None:
        """Called with status and headers."""

    def on_body(self, reads: list[tuple[int, bytes]]) -> None:
        """Called with pieces of the body, each with its arrival."""

    def on_end(self, finish: Finish) -> None:
        """Called once, last."""


class Finish(NamedTuple):
    """How and when the exchange ended."""

    ending: Ending
    t_ns: int
    detail: str = ""


class Transport(Protocol):
    """An HTTP client of one server."""

    def send(self, request: bytes, sink: Sink, *, connect_s: float) -> None:
        """Send a request and pass its response to the sink; `on_end` is always called, after this returns."""

    async def prepare(self, connections: int, *, connect_s: float) -> None:
        """Open connections ahead; failures are left to the requests."""

    def close(self) -> None:
        """Close all connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The server of a URL and the route to it; `prefix` is the URL's path without a trailing slash."""

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
    def connect_address(self) -> tuple[str, int]:
        """Host and port of connections: the proxy's, if there is one."""
        if self.route.proxy is None:
            return self.host, self.port
        proxy = Server.of(self.route.proxy)
        return proxy.host, proxy.port

    def target(self, path: str) -> str:
        """Return the request target: a path, or the whole URL for an http proxy."""
        through = self.route.proxy is not None and not self.secure
        return f"http://{self.authority}{self.prefix}{path}" if through else f"{self.prefix}{path}"

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"
