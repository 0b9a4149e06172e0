"""A lean HTTP/1.1 server of the simulator: asyncio.Protocol and httptools, no framework per token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import httptools

MAX_BODY_BYTES = 8 << 20


class Exchange:
    """One request and its answer: either `respond`, or `start` with `send` and `end` (or `cut`)."""

    __slots__ = ("_connection", "body", "finished", "headers", "method", "on_disconnect", "path", "started")

    def __init__(
        self, connection: HttpConnection, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> None:
        self._connection = connection
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.started = False
        self.finished = False
        self.on_disconnect: Callable[[], None] | None = None

    def respond(
        self,
        status: int,
        body: bytes,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer completely."""
        if self.finished:
            return
        self.started = True
        head = _head(
            status, {"content-type": content_type, "content-length": str(len(body)), **(headers or {})}
        )
        self._connection.write(head + body)
        self._finish()

    def start(
        self, status: int, headers: Mapping[str, str], *, chunked: bool = True, first: bytes = b""
    ) -> None:
        """Send the head of an answer whose body follows piece by piece, together with its first piece."""
        if self.finished:
            return
        self.started = True
        framing = {"transfer-encoding": "chunked"} if chunked else {}
        self._connection.write(_head(status, {**headers, **framing}) + (_chunk(first) if first else b""))

    def send(self, data: bytes) -> None:
        """Send one piece of a chunked body at once."""
        if not self.finished:
            self._connection.write(_chunk(data))

    def send_raw(self, data: bytes) -> None:
        """Send a piece of a body whose length the head has told."""
        if not self.finished:
            self._connection.write(data)

    def end(self, *, chunked: bool = True) -> None:
        """Finish the body properly."""
        if self.finished:
            return
        if chunked:
            self._connection.write(b"0\r\n\r\n")
        self._finish()

    def cut(self) -> None:
        """Close the connection in the middle of the body."""
        if not self.finished:
            self.finished = True
            self._connection.close()

    def _finish(self) -> None:
        self.finished = True
        self._connection.answered()


Handler = Callable[[Exchange], None]


class HttpConnection(asyncio.Protocol):
    """One client connection; requests are answered one after the other, pipelined ones wait."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._current: Exchange | None = None
        self._waiting: list[Exchange] = []
        self._keep_alive = True
        self._path = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Tell whoever is still producing an answer."""
        self._transport = None
        exchange, self._current = self._current, None
        if exchange is not None and not exchange.finished:
            exchange.finished = True
            if exchange.on_disconnect is not None:
                exchange.on_disconnect()

    def data_received(self, data: bytes) -> None:
        """Parse; what is not HTTP ends the connection."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            raise  # a fault of ours, not of the client: it belongs in the log
        except httptools.HttpParserError:
            self.write(_head(400, {"content-length": "0", "connection": "close"}))
            self.close()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._path, self._headers, self._body = b"", {}, []

    def on_url(self, url: bytes) -> None:
        """Collect the request's target."""
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one header; names in lower case."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Collect a piece of the body."""
        self._body.append(body)
        if sum(map(len, self._body)) > MAX_BODY_BYTES:
            self.close()

    def on_message_complete(self) -> None:
        """Hand the request over, or let it wait for the one before."""
        self._keep_alive = self._parser.should_keep_alive()
        method = self._parser.get_method().decode("latin-1")
        path = self._path.decode("latin-1").partition("?")[0]
        exchange = Exchange(self, method, path, self._headers, b"".join(self._body))
        if self._current is not None:
            self._waiting.append(exchange)
            return
        self._current = exchange
        self._handler(exchange)

    def write(self, data: bytes) -> None:
        """Write if the client is still there."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Close after what was written."""
        if self._transport is not None:
            self._transport.close()

    def answered(self) -> None:
        """Go on with the next request, or close as the client asked."""
        self._current = None
        if not self._keep_alive:
            self.close()
        elif self._waiting:
            self._current = self._waiting.pop(0)
            self._handler(self._current)


def json_bytes(value: Any) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def openai_error(status: int, message: str, kind: str, param: str | None = None) -> bytes:
    """Return an error body as OpenAI-compatible servers send it."""
    return json_bytes({"error": {"message": message, "type": kind, "param": param, "code": status}})


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n".encode("latin-1")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
