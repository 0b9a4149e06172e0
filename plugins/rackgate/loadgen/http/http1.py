"""A lean HTTP/1.1 client for the load path: one connection per request in flight, stamped reads.

Arrivals are stamped when the bytes reach the process. What was read is understood only after the sockets
that were ready have been read, so that one stream's parsing does not delay another stream's stamp.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from time import perf_counter_ns

from rackgate.engines.protocols.answer import Ending
from rackgate.loadgen.http.connect import dial
from rackgate.loadgen.http.connection import Connection, reason_of
from rackgate.loadgen.http.transport import Finish, Server, Sink
from rackgate.nouns.route import tls_of

SLICE_NS = 50_000
"""For so long connections are looked at per turn of the loop: arrivals wait for that and for one of them."""


class HttpClient:
    """Connections to one server, of the kind given. What is in flight is for the load to decide: no limit."""

    def __init__(self, server: Server, *, kind: type[Connection] = Connection) -> None:
        self._server = server
        self._kind = kind
        self._tls = tls_of(server.route) if server.secure else None
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._addresses: list[str] = []
        self._waiting: deque[Connection] = deque()
        self._scheduled = False
        self._connecting: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def prepare(self, connections: int, *, connect_s: float) -> None:
        """Open that many connections ahead; failures are left to the requests."""
        wanted = connections - len(self._idle)
        opened = await asyncio.gather(
            *(self._connect(connect_s) for _ in range(wanted)), return_exceptions=True
        )
        self._idle.extend(one for one in opened if isinstance(one, Connection) and one.usable)

    def send(self, request: bytes, sink: Sink, *, connect_s: float) -> None:
        """Send and tell the sink what comes, down to how it ended, whatever happens."""
        while self._idle:
            connection = self._idle.pop()
            if connection.kept:
                connection.perform(request, sink)
                return
            connection.drop()
        task = self._loop.create_task(self._connect_and_send(request, sink, connect_s))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def close(self) -> None:
        """Drop all connections."""
        for connecting in self._connecting:
            connecting.cancel()
        for connection in list(self._open):
            connection.drop()
        self._idle.clear()

    async def _connect_and_send(self, request: bytes, sink: Sink, connect_s: float) -> None:
        connecting_ns = perf_counter_ns()
        try:
            connection = await self._connect(connect_s)
        except (OSError, ValueError) as error:
            why = reason_of(error)
            sink.on_end(Finish(ending=Ending.UNCONNECTED, t_ns=perf_counter_ns(), detail=why))
        else:
            connection.perform(request, sink, connecting_ns)

    async def _connect(self, limit_s: float) -> Connection:
        async with asyncio.timeout(limit_s):
            if not self._addresses:
                host, port = self._server.dialled
                found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                self._addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
            return await self._connect_any()

    async def _connect_any(self) -> Connection:
        failure: OSError | None = None
        for address in list(self._addresses):
            try:
                connection = await dial(lambda: self._kind(self), self._server, self._tls, address)
            except OSError as error:
                failure = failure or error
            else:
                self._addresses = [address]  # another address of the name may be another engine
                return connection
        raise failure or OSError(f"no address for {self._server.host}")

    # What follows is called by connections.

    def opened(self, connection: Connection) -> None:
        """The connection came up."""
        self._open.add(connection)

    def closed(self, connection: Connection) -> None:
        """The connection is gone."""
        self._open.discard(connection)

    def released(self, connection: Connection) -> None:
        """The connection is free for the next request."""
        self._idle.append(connection)

    def look_at(self, connection: Connection) -> None:
        """Call `advance` after the sockets that are ready now have been read."""
        connection.queued = True
        self._waiting.append(connection)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        waiting = self._waiting
        until_ns = perf_counter_ns() + SLICE_NS
        while waiting and perf_counter_ns() < until_ns:
            connection = waiting.popleft()
            connection.queued = False
            connection.advance()
        if waiting:
            self._loop.call_soon(self._look)
        else:
            self._scheduled = False
