"""Lean HTTP/1.1 server of the simulator on asyncio.Protocol and httptools: no framework per token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httptools

MAX_BODY_BYTES = 8 << 20
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and its answer: `respond`, or `start` followed by `send` and then `end` or `cut`."""

    _connection: HttpConnection
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    started: bool = False
    finished: bool = False
    on_disconnect: Callable[[], None] | None = None

    def respond(
        self,
        status: int,
        body: bytes,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a whole answer."""
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
        """Send the head of an answer and the first piece of its body; `send` sends the other pieces."""
        if self.finished:
            return
        self.started = True
        framing = {"transfer-encoding": "chunked"} if chunked else {}
        self._connection.write(_head(status, {**headers, **framing}) + (_chunk(first) if first else b""))

    def send(self, data: bytes) -> None:
        """Send one piece of a chunked body."""
        if not self.finished:
            self._connection.write(_chunk(data))

    def send_raw(self, data: bytes) -> None:
        """Send a piece of a body with a content-length."""
        if not self.finished:
            self._connection.write(data)

    def end(self, *, chunked: bool = True) -> None:
        """Finish the body."""
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
    """One client connection; it answers pipelined requests one after the other."""

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
        """Store the transport."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Notify the producer of an unfinished answer."""
        self._transport = None
        exchange, self._current = self._current, None
        if exchange is not None and not exchange.finished:
            exchange.finished = True
            if exchange.on_disconnect is not None:
                exchange.on_disconnect()

    def data_received(self, data: bytes) -> None:
        """Parse; close the connection after anything that is not HTTP."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            raise  # an error of this server, not of the client: it belongs in the log
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
        """Collect one header; its name in lower case."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Collect a piece of the body."""
        self._body.append(body)
        if sum(map(len, self._body)) > MAX_BODY_BYTES:
            self.close()

    def on_message_complete(self) -> None:
        """Handle the request, or queue it behind an unanswered request."""
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
        """Write unless the client has disconnected."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Close after the written bytes are sent."""
        if self._transport is not None:
            self._transport.close()

    def answered(self) -> None:
        """Handle the next request, or close the connection if the client does not keep it alive."""
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
    """Return the body of an error as OpenAI-compatible servers send it."""
    return json_bytes({"error": {"message": message, "type": kind, "param": param, "code": status}})


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n".encode("latin-1")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
