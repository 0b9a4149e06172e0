"""The HTTP/1.1 client of the load path: one connection per request in flight, and stamped reads.

Reads are stamped when the bytes reach the process. They are parsed only after all sockets that were ready
have been read, so that parsing one stream does not delay another stream's stamp.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from time import perf_counter_ns

from rackgate.engines.protocols.answer import Ending
from rackgate.loadgen.http.connect import open_connection
from rackgate.loadgen.http.connection import Connection, reason_of
from rackgate.loadgen.http.transport import Finish, Server, Sink
from rackgate.nouns.route import tls_of

SLICE_NS = 50_000
"""Time for parsing per turn of the loop: an arrival waits for this and one connection at most."""


class HttpClient:
    """An unlimited pool of connections to one server; the load limits the requests in flight."""

    def __init__(self, server: Server, *, connection_class: type[Connection] = Connection) -> None:
        self._server = server
        self._connection_class = connection_class
        self._tls = tls_of(server.route) if server.secure else None
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._addresses: list[str] = []
        self._to_process: deque[Connection] = deque()
        self._scheduled = False
        self._connecting: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def prepare(self, connections: int, *, connect_s: float) -> None:
        """Open connections ahead; failures are left to the requests."""
        wanted = connections - len(self._idle)
        opened = await asyncio.gather(
            *(self._connect(connect_s) for _ in range(wanted)), return_exceptions=True
        )
        self._idle.extend(one for one in opened if isinstance(one, Connection) and one.usable)

    def send(self, request: bytes, sink: Sink, *, connect_s: float) -> None:
        """Send a request and pass its response to the sink; `on_end` is always called."""
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
        """Close all connections."""
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
                host, port = self._server.connect_address
                found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                self._addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
            return await self._connect_any()

    async def _connect_any(self) -> Connection:
        failure: OSError | None = None
        for address in list(self._addresses):
            try:
                connection = await open_connection(
                    lambda: self._connection_class(self), self._server, self._tls, address
                )
            except OSError as error:
                failure = failure or error
            else:
                self._addresses = [address]  # another address of the name may be another engine
                return connection
        raise failure or OSError(f"no address for {self._server.host}")

    def opened(self, connection: Connection) -> None:
        """Count an open connection."""
        self._open.add(connection)

    def closed(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._open.discard(connection)

    def released(self, connection: Connection) -> None:
        """Keep a connection for the next request."""
        self._idle.append(connection)

    def schedule(self, connection: Connection) -> None:
        """Process a connection's reads after the sockets that are ready now have been read."""
        connection.queued = True
        self._to_process.append(connection)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._process)

    def _process(self) -> None:
        waiting = self._to_process
        until_ns = perf_counter_ns() + SLICE_NS
        while waiting and perf_counter_ns() < until_ns:
            connection = waiting.popleft()
            connection.queued = False
            connection.process_reads()
        if waiting:
            self._loop.call_soon(self._process)
        else:
            self._scheduled = False
