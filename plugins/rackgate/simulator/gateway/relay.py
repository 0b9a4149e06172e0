"""Relay of one request through the gateway, with failover to other engines."""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from typing import Protocol

from rackgate.simulator.gateway.upstream import Backend, Call, UpstreamLost
from rackgate.simulator.http_server import Exchange, json_bytes, openai_error
from rackgate.simulator.knobs import GatewayKnobs

_REQUEST_HEADERS = ("content-type", "authorization", "x-request-id", "traceparent", "tracestate")
_RESPONSE_HEADERS = ("content-type", "content-length", "retry-after")


class Router(Protocol):
    """Chooses the engines of requests and counts their outcomes."""

    knobs: GatewayKnobs

    def choose(self, tried: AbstractSet[str]) -> Backend | None:
        """Return the next engine; None if all are tried or out of rotation."""

    def failed(self, backend: Backend, detail: str, *, hung: bool) -> None:
        """Count a request that the engine lost."""

    def finished(self, *, ok: bool) -> None:
        """Count a finished request."""


class Relay:
    """Sends one request to an engine and streams the answer back (an `AnswerListener`)."""

    def __init__(self, router: Router, exchange: Exchange, request_id: str) -> None:
        self._router = router
        self._exchange = exchange
        self._request_id = request_id
        self._tried: set[str] = set()
        self._backend: Backend | None = None
        self._call: Call | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._chunked = True
        self._held: list[bytes] = []
        self._status = 0
        self.finished = False
        exchange.on_disconnect = self._client_disconnected

    def attempt(self) -> None:
        """Send the request to the next engine, or refuse it if there is none."""
        backend = self._router.choose(self._tried)
        if backend is None:
            status = 502 if self._tried else 503
            self._refuse(status, "no engine could answer" if self._tried else "no engine is in rotation")
            return
        self._tried.add(backend.entity)
        self._backend = backend
        backend.outstanding += 1
        backend.requests += 1
        timeout_s = self._router.knobs.first_byte_timeout_s
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._stalled)
        self._call = Call(backend, self._request_to(backend), self)

    def _request_to(self, backend: Backend) -> bytes:
        exchange = self._exchange
        headers = {name: exchange.headers[name] for name in _REQUEST_HEADERS if name in exchange.headers}
        headers |= {"x-request-id": self._request_id, "host": f"{backend.host}:{backend.port}"}
        headers["content-length"] = str(len(exchange.body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{exchange.method} {exchange.path} HTTP/1.1\r\n{lines}\r\n"
        return head.encode("latin-1") + exchange.body

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Send status and headers to the client."""
        self._stop_timer()
        self._status = status
        answer = {name: headers[name] for name in _RESPONSE_HEADERS if name in headers}
        answer["x-request-id"] = self._request_id
        if self._router.knobs.served_by_header and self._backend is not None:
            answer["x-served-by"] = self._backend.entity
        self._chunked = "content-length" not in answer
        self._exchange.start(status, answer, chunked=self._chunked)

    def body(self, data: bytes) -> None:
        """Send a piece to the client, unless this gateway buffers streams."""
        if self._router.knobs.buffer_streams and self._chunked:
            self._held.append(data)
        elif self._chunked:
            self._exchange.send(data)
        else:
            self._exchange.send_raw(data)

    def done(self) -> None:
        """Finish the answer."""
        if self._held:
            self._exchange.send(b"".join(self._held))
        self._exchange.end(chunked=self._chunked)
        self._finish(ok=self._status < 500)

    def lost(self, problem: UpstreamLost) -> None:
        """Try another engine if the client has received nothing, else send an error inside the stream."""
        backend = self._detach_backend()
        if backend is not None:
            self._router.failed(backend, str(problem), hung=False)
        if self._exchange.started:
            if self._chunked:
                error = {"message": f"the engine was lost: {problem}", "type": "BadGateway", "code": 502}
                held = b"".join(self._held)
                self._exchange.send(held + b"data: " + json_bytes({"error": error}) + b"\n\n")
                self._exchange.end()
            else:
                self._exchange.cut()
            self._finish(ok=False)
        else:
            self._fail_over()

    def _stalled(self) -> None:
        self._timer = None
        if self._call is not None:
            self._call.cancel()
        backend = self._detach_backend()
        if backend is not None:
            self._router.failed(backend, "no byte of an answer in time", hung=True)
        self._fail_over()

    def _fail_over(self) -> None:
        if self._router.knobs.failover:
            self.attempt()
        else:
            self._refuse(502, "the engine was lost")

    def _refuse(self, status: int, message: str) -> None:
        headers = {"x-request-id": self._request_id}
        self._exchange.respond(status, openai_error(status, message, "BadGateway"), headers=headers)
        self._finish(ok=False)

    def _client_disconnected(self) -> None:
        if self._call is not None:
            self._call.cancel()
        self._finish(ok=False)

    def _detach_backend(self) -> Backend | None:
        self._stop_timer()
        backend, self._backend, self._call = self._backend, None, None
        if backend is not None:
            backend.outstanding -= 1
        return backend

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _finish(self, *, ok: bool) -> None:
        self._detach_backend()
        if not self.finished:
            self.finished = True
            self._router.finished(ok=ok)
