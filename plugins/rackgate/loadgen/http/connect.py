"""Opens connections of the load path: straight to the server, or through a forward proxy."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar, cast

from rackgate.loadgen.http.head import HeadError, parse_head
from rackgate.loadgen.http.transport import Server

_Protocol = TypeVar("_Protocol", bound=asyncio.Protocol)

_MOST_BYTES = 65536


async def dial(
    make: Callable[[], _Protocol], server: Server, tls: ssl.SSLContext | None, address: str
) -> _Protocol:
    """Return the protocol of a new connection to the server, dialled at this address.

    For https a proxy is asked for a tunnel (CONNECT), for http it reads the requests themselves. Raises
    `OSError`.
    """
    loop = asyncio.get_running_loop()
    port = server.dialled[1]
    if server.route.proxy is None or tls is None:
        name = server.host if tls is not None else None
        _, protocol = await loop.create_connection(make, address, port, ssl=tls, server_hostname=name)
        return protocol
    transport, opening = await loop.create_connection(
        lambda: _Tunnel(server.host, server.port), address, port
    )
    try:
        await opening.open
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
    """Asks a proxy for a way through; `open` is done once it has given one."""

    def __init__(self, host: str, port: int) -> None:
        self.open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._to = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._said = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        asked = f"CONNECT {self._to} HTTP/1.1\r\nHost: {self._to}\r\n\r\n"
        cast("asyncio.Transport", transport).write(asked.encode())

    def data_received(self, data: bytes) -> None:
        self._said += data
        head, blank, rest = self._said.partition(b"\r\n\r\n")
        if not blank and len(self._said) <= _MOST_BYTES:
            return
        try:
            status = parse_head(head + blank).status
        except HeadError as error:
            self._refused(f"is none: {error}")
            return
        if status // 100 != 2 or rest:
            self._refused(f"gives no tunnel to {self._to}: HTTP {status}")
        elif not self.open.done():
            self.open.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._refused(f"closed the connection: {exc or 'no answer'}")

    def _refused(self, why: str) -> None:
        if not self.open.done():
            self.open.set_exception(ConnectionError(f"the proxy {why}"))
