"""A lean HTTP/1.1 client for the load path: one connection per request in flight, stamped reads.

Arrivals are stamped when the bytes reach the process. What was read is parsed only after the sockets
that were ready have been read, so that one stream's parsing does not delay another stream's stamp.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import httptools

from rackgate.engines.protocol import Ending
from rackgate.loadgen.transport import Finish

if TYPE_CHECKING:
    from rackgate.loadgen.transport import Server, Sink

__all__ = ["HttpClient"]

PARSES_PER_TURN = 16
MAX_HEAD_BYTES = 1 << 20
PARSE_WITHIN_S = 0.004
"""Reads in the middle of a stream may wait so long for their parsing: they are stamped, and a turn of the
event loop for each costs more than the parsing. Whoever asks what has come must wait so long too."""

_LAST_CHUNK = b"0\r\n\r\n"
STALE_WITHIN_NS = 100_000_000
"""A peer that closed a kept connection says so within this time and two round trips."""


class HttpClient:
    """Connections to one server. There is no limit of its own: the load decides what is in flight.

    `tls` is the context for https, by default one that verifies.
    """

    def __init__(self, server: Server, *, tls: ssl.SSLContext | None = None) -> None:
        self._server = server
        self._tls = (tls or ssl.create_default_context()) if server.secure else None
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._addresses: list[str] = []
        self._inbox: deque[tuple[_Connection, int, bytes | None, Exception | None]] = deque()
        self._scheduled = self._waiting = False
        self._loop = asyncio.get_running_loop()

    async def prepare(self, connections: int, *, connect_s: float) -> None:
        """Open that many connections ahead; failures are left to the requests."""
        wanted = connections - len(self._idle)
        opened = await asyncio.gather(
            *(self._connect(connect_s) for _ in range(wanted)), return_exceptions=True
        )
        self._idle.extend(one for one in opened if isinstance(one, _Connection) and one.usable)

    async def exchange(self, request: bytes, sink: Sink, *, connect_s: float) -> Finish:
        """Send and return when the response has ended, whatever happened."""
        connection = self._take_idle()
        if connection is not None:
            finish = await connection.perform(request, sink)
            if not connection.stale(finish):
                return finish
        try:
            fresh = await self._connect(connect_s)
        except (OSError, ValueError) as error:
            return Finish(
                ending=Ending.UNCONNECTED,
                t_ns=perf_counter_ns(),
                detail=_why(error),
                retried=connection is not None,
            )
        finish = await fresh.perform(request, sink)
        if connection is None:
            return finish
        return Finish(ending=finish.ending, t_ns=finish.t_ns, detail=finish.detail, retried=True)

    def close(self) -> None:
        """Drop all connections."""
        for connection in list(self._open):
            connection.drop()
        self._idle.clear()

    def _take_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def _connect(self, limit_s: float) -> _Connection:
        begun = perf_counter_ns()
        async with asyncio.timeout(limit_s):
            if not self._addresses:
                found = await self._loop.getaddrinfo(
                    self._server.host, self._server.port, type=socket.SOCK_STREAM
                )
                self._addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
            connection = await self._connect_any()
        connection.connect_ns = perf_counter_ns() - begun
        return connection

    async def _connect_any(self) -> _Connection:
        failure: OSError | None = None
        for address in list(self._addresses):
            try:
                _, connection = await self._loop.create_connection(
                    lambda: _Connection(self),
                    address,
                    self._server.port,
                    ssl=self._tls,
                    server_hostname=self._server.host if self._tls else None,
                )
            except OSError as error:
                failure = failure or error
            else:
                self._addresses = [address]  # another address of the name may be another engine
                return connection
        raise failure or OSError(f"no address for {self._server.host}")

    # What follows is called by connections.

    def opened(self, connection: _Connection) -> None:
        """A connection came up."""
        self._open.add(connection)

    def released(self, connection: _Connection) -> None:
        """A connection is free for the next request."""
        self._idle.append(connection)

    def arrived(
        self, connection: _Connection, t_ns: int, data: bytes | None, error: Exception | None
    ) -> None:
        """Put a read, or the end of the connection, behind what arrived before it."""
        self._inbox.append((connection, t_ns, data, error))
        if self._scheduled:
            return
        if data is not None and connection.under_way and not data.endswith(_LAST_CHUNK):
            if not self._waiting:
                self._waiting = True
                self._loop.call_later(PARSE_WITHIN_S, self._parse_waiting)
            return
        self._scheduled = True
        self._loop.call_soon(self._parse)

    def _parse_waiting(self) -> None:
        self._waiting = False
        if self._inbox and not self._scheduled:
            self._scheduled = True
            self._parse()

    def _parse(self) -> None:
        inbox = self._inbox
        for _ in range(min(len(inbox), PARSES_PER_TURN)):
            connection, t_ns, data, error = inbox.popleft()
            if data is not None:
                connection.parse(t_ns, data)
            else:
                self._open.discard(connection)
                connection.ended(t_ns, error)
        if inbox:
            self._loop.call_soon(self._parse)
        else:
            self._scheduled = False


class _Connection(asyncio.Protocol):
    """One connection; it carries one request at a time."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._transport: Any = None
        self._sink: Sink | None = None
        self._waiter: asyncio.Future[Finish] | None = None
        self._parser: Any = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._sized = False
        self._head_seen = False
        self._lost = False
        self._used = False
        self._t_ns = 0
        self._sent_ns = 0
        self._head_bytes = 0
        self._bytes_seen = False
        self.connect_ns = 0
        self.under_way = False

    @property
    def usable(self) -> bool:
        """True if a request can be sent."""
        return not self._lost and self._transport is not None and not self._transport.is_closing()

    def stale(self, finish: Finish) -> bool:
        """True if the peer closed a kept connection before it can have read the request."""
        return (
            finish.ending is Ending.LOST
            and self._used
            and not self._bytes_seen
            and finish.t_ns - self._sent_ns <= STALE_WITHIN_NS + 2 * self.connect_ns
        )

    async def perform(self, request: bytes, sink: Sink) -> Finish:
        """Send one request and return when its response has ended."""
        self._parser = httptools.HttpResponseParser(self)
        self._headers = []
        self._head_bytes = 0
        self._head_seen = self._sized = self._bytes_seen = self.under_way = False
        self._sink = sink
        self._waiter = asyncio.get_running_loop().create_future()
        self._sent_ns = perf_counter_ns()
        sink.on_sent(self._sent_ns, self.abort)
        self._transport.write(request)
        try:
            return await self._waiter
        except asyncio.CancelledError:
            self.drop()
            raise

    def abort(self, ending: Ending, detail: str = "") -> None:
        """End the exchange now and drop the connection."""
        self._finish(ending, perf_counter_ns(), detail)
        self.drop()

    def drop(self) -> None:
        """Close at once."""
        self._lost = True
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol: stamp and put aside, nothing else.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._client.opened(self)

    def data_received(self, data: bytes) -> None:
        self._client.arrived(self, perf_counter_ns(), data, None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._client.arrived(self, perf_counter_ns(), None, exc)

    # Parsing, in the order of arrival.

    def parse(self, t_ns: int, data: bytes) -> None:
        """Take one read."""
        if self._sink is None:
            self.drop()  # bytes that nobody asked for: the connection is out of step
            return
        self._t_ns = t_ns
        if not self._head_seen:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and len(data) < MAX_HEAD_BYTES:
                self.abort(Ending.MALFORMED, f"HTTP: a head of more than {MAX_HEAD_BYTES >> 10} KiB")
                return
        if not self._bytes_seen:
            self._bytes_seen = True
            self._sink.on_byte(t_ns)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.abort(Ending.MALFORMED, f"HTTP: {_why(error)}")

    def ended(self, t_ns: int, error: Exception | None) -> None:
        """The connection is gone; a body without a length ends with it."""
        if self._head_seen and not self._sized and error is None:
            self._finish(Ending.COMPLETE, t_ns)
        else:
            self._finish(Ending.LOST, t_ns, _why(error) if error else "connection closed by the peer")

    def _finish(self, ending: Ending, t_ns: int, detail: str = "") -> None:
        waiter, self._waiter, self._sink = self._waiter, None, None
        if waiter is not None and not waiter.done():
            waiter.set_result(Finish(ending=ending, t_ns=t_ns, detail=detail))

    # httptools callbacks.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 and status != 101:
            return
        self._head_seen = True
        self.under_way = any(
            name == b"transfer-encoding" and b"chunked" in value.lower() for name, value in self._headers
        )
        sized = any(name == b"content-length" for name, _ in self._headers)
        self._sized = self.under_way or sized or status in (204, 304)
        if self._sink is not None:
            self._sink.on_head(self._t_ns, status, self._headers)

    def on_body(self, body: bytes) -> None:
        if self._sink is not None:
            self._sink.on_body(self._t_ns, body)

    def on_message_complete(self) -> None:
        if not self._head_seen:  # an interim 1xx response
            self._headers = []
            return
        if self._sink is None:  # a second response that nobody asked for
            self.drop()
            return
        keep = self._parser.should_keep_alive() and self.usable
        self._used = True
        self._finish(Ending.COMPLETE, self._t_ns)
        if keep:
            self._client.released(self)
        else:
            self.drop()


def _why(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted: certificate verify failed: {error.verify_message}"
    text = str(error) or type(error).__name__
    return "connect limit reached" if isinstance(error, TimeoutError) and not str(error) else text
