"""Opens connections of the load path, directly or through a forward proxy."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar, cast

from rackgate.loadgen.http.head import HeadError, parse_head
from rackgate.loadgen.http.transport import Server

_Protocol = TypeVar("_Protocol", bound=asyncio.Protocol)

_MAX_HEAD_BYTES = 65536


async def open_connection(
    make: Callable[[], _Protocol], server: Server, tls: ssl.SSLContext | None, address: str
) -> _Protocol:
    """Return the protocol of a new connection to the server at `address`.

    Through a proxy, https uses a CONNECT tunnel, and http sends the requests to the proxy itself. Raises
    `OSError`.
    """
    loop = asyncio.get_running_loop()
    port = server.connect_address[1]
    if server.route.proxy is None or tls is None:
        name = server.host if tls is not None else None
        _, protocol = await loop.create_connection(make, address, port, ssl=tls, server_hostname=name)
        return protocol
    transport, tunnel = await loop.create_connection(lambda: _Tunnel(server.host, server.port), address, port)
    try:
        await tunnel.opened
        protocol = make()
        inner = await loop.start_tls(transport, protocol, tls, server_hostname=server.host)
    except BaseException:
        transport.abort()
        raise
    if inner is None:
        raise ConnectionResetError("the proxy closed the tunnel")
    protocol.connection_made(inner)
    return protocol


class _Tunnel(asyncio.Protocol):
    """Requests a CONNECT tunnel from a proxy; `opened` is done once it stands."""

    def __init__(self, host: str, port: int) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        request = f"CONNECT {self._target} HTTP/1.1\r\nHost: {self._target}\r\n\r\n"
        cast("asyncio.Transport", transport).write(request.encode())

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, rest = self._received.partition(b"\r\n\r\n")
        if not blank and len(self._received) <= _MAX_HEAD_BYTES:
            return
        try:
            status = parse_head(head + blank).status
        except HeadError as error:
            self._refused(f"is none: {error}")
            return
        if status // 100 != 2 or rest:
            self._refused(f"gives no tunnel to {self._target}: HTTP {status}")
        elif not self.opened.done():
            self.opened.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._refused(f"closed the connection: {exc or 'no answer'}")

    def _refused(self, why: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectionError(f"the proxy {why}"))
