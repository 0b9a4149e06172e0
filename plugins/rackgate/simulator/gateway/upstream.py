"""The gateway's HTTP client: pooled connections to each engine, with one call at a time on each."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

import httptools


class UpstreamLost(Exception):
    """The engine could not be reached, or its connection ended before the answer was complete."""


class AnswerListener(Protocol):
    """Receives an engine's answer."""

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Take the head of the answer."""

    def body(self, data: bytes) -> None:
        """Take the part of the body that one read returned."""

    def done(self) -> None:
        """Take note that the answer is complete."""

    def lost(self, problem: UpstreamLost) -> None:
        """Take note that the connection ended before the answer was complete."""


@dataclass(slots=True, kw_only=True, eq=False)
class Backend:
    """The gateway's state of one engine."""

    entity: str
    host: str
    port: int
    weight: float = 1.0
    delay_ms: float = 0.0
    in_rotation: bool = False
    since_s: float = 0.0
    outstanding: int = 0
    requests: int = 0
    failures: int = 0
    bad_checks: int = 0
    needs_token: bool = True
    detail: str = ""
    idle: list[_Connection] = field(default_factory=list)
    last_turn: int = 0


class Call:
    """A call in flight; `cancel` drops it and its connection."""

    __slots__ = ("_cancelled", "_connection", "_task")

    def __init__(self, backend: Backend, request: bytes, listener: AnswerListener) -> None:
        self._connection: _Connection | None = None
        self._cancelled = False
        self._task: asyncio.Task[None] | None = None
        if backend.idle and not backend.delay_ms:
            self._connection = backend.idle.pop()
            self._connection.send(request, listener)
        else:
            self._task = asyncio.get_running_loop().create_task(self._open(backend, request, listener))

    async def _open(self, backend: Backend, request: bytes, listener: AnswerListener) -> None:
        if backend.delay_ms:
            await asyncio.sleep(backend.delay_ms / 1e3)
        if self._cancelled:
            return
        if backend.idle:
            self._connection = backend.idle.pop()
        else:
            try:
                _, self._connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(backend), backend.host, backend.port
                )
            except OSError as problem:
                if not self._cancelled:
                    listener.lost(UpstreamLost(str(problem)))
                return
        if self._cancelled:
            self._connection.close()
        else:
            self._connection.send(request, listener)

    def cancel(self) -> None:
        """Drop the call and close its connection."""
        self._cancelled = True
        if self._connection is not None:
            self._connection.forget()


class _Connection(asyncio.Protocol):
    """One connection to an engine."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._transport: asyncio.Transport | None = None
        self._listener: AnswerListener | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._complete = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def send(self, request: bytes, listener: AnswerListener) -> None:
        self._listener = listener
        self._complete = False
        self._headers = {}
        self._parser = httptools.HttpResponseParser(self)
        if self._transport is not None:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Parse one read; the listener receives its part of the body as one piece."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            raise  # an error of this gateway, not of the engine: it belongs in the log
        except httptools.HttpParserError as problem:
            self._fail(f"not HTTP: {problem}")
            return
        listener = self._listener
        if self._pieces:
            body, self._pieces = b"".join(self._pieces), []
            if listener is not None:
                listener.body(body)
        if self._complete:
            self._complete = False
            self._listener = None
            if self._parser.should_keep_alive() and self._transport is not None:
                self._backend.idle.append(self)
            else:
                self.close()
            if listener is not None:
                listener.done()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._listener is not None:
            self._listener.head(self._parser.get_status_code(), self._headers)

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self._complete = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self in self._backend.idle:
            self._backend.idle.remove(self)
        self._fail(str(exc) if exc else "the engine closed the connection")

    def forget(self) -> None:
        """Close the connection without a word to the listener."""
        self._listener = None
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _fail(self, message: str) -> None:
        listener, self._listener = self._listener, None
        self.close()
        if listener is not None:
            listener.lost(UpstreamLost(message))


class _Collector:
    """A listener that collects a small answer."""

    def __init__(self, answer: asyncio.Future[tuple[int, bytes]]) -> None:
        self._answer = answer
        self._status = 0
        self._body = b""

    def head(self, status: int, headers: dict[str, str]) -> None:  # noqa: ARG002
        self._status = status

    def body(self, data: bytes) -> None:
        self._body += data

    def done(self) -> None:
        if not self._answer.done():
            self._answer.set_result((self._status, self._body))

    def lost(self, problem: UpstreamLost) -> None:
        if not self._answer.done():
            self._answer.set_exception(problem)


async def fetch(backend: Backend, request: bytes, timeout_s: float) -> tuple[int, bytes]:
    """Return status and body; raises UpstreamLost or TimeoutError."""
    answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
    call = Call(backend, request, _Collector(answer))
    try:
        async with asyncio.timeout(timeout_s):
            return await answer
    except TimeoutError:
        call.cancel()
        raise
