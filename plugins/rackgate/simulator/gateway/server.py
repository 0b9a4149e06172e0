"""The simulated gateway: OpenAI's API with health checks, load balancing and failover over the engines."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Set as AbstractSet
from typing import Any
from urllib.parse import urlsplit

from rackgate.simulator.child_process import bound_socket, end_with_starter, read_plan, report_ports
from rackgate.simulator.gateway.relay import Relay
from rackgate.simulator.gateway.upstream import Backend, UpstreamLost, fetch
from rackgate.simulator.http_server import PROMETHEUS_TEXT, Exchange, HttpConnection, json_bytes, openai_error
from rackgate.simulator.knobs import GatewayKnobs, from_table

_FIRST_TIMEOUT_S = 1.5
_CHECK_TIMEOUT_S = 2.0
_BAD_CHECKS_OUT = 2
_HEALTH_REQUEST = b"GET /health HTTP/1.1\r\nhost: engine\r\n\r\n"
_RELAYED_PATHS = ("/v1/chat/completions", "/v1/completions")


class _Gateway:
    """Routes to the engine with the fewest outstanding requests per weight; ties go round robin."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.knobs = from_table(GatewayKnobs, plan["knobs"], "gateway")
        self.model: str = plan["model"]
        self.backends = [self._backend(entity, url) for entity, url in plan["engines"].items()]
        self.loop = asyncio.new_event_loop()
        self.in_flight = 0
        self.turns = 0
        self.answered = {"ok": 0, "failed": 0, "refused": 0}
        self.failovers = 0

    def _backend(self, entity: str, url: str) -> Backend:
        parts = urlsplit(url)
        return Backend(
            entity=entity,
            host=parts.hostname or "",
            port=parts.port or 80,
            weight=self.knobs.weights.get(entity, 1.0),
            delay_ms=self.knobs.node_delay_ms.get(entity.partition("/")[0], 0.0),
        )

    def run(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        end_with_starter(loop, loop.stop)
        sock = bound_socket()
        port = sock.getsockname()[1]
        if self.knobs.health_checks:
            loop.run_until_complete(self.check_all())
            watchers = [loop.create_task(self.watch(backend)) for backend in self.backends]
        else:
            for backend in self.backends:
                self.set_rotation(backend, into=True, detail="never checked")
            watchers = []
        if self.knobs.listening:
            loop.run_until_complete(
                loop.create_server(lambda: HttpConnection(self.handle), sock=sock, backlog=512)
            )
        report_ports({"gateway": port})
        loop.run_forever()
        for watcher in watchers:
            watcher.cancel()
        os._exit(0)  # without waiting for a thread that still resolves the name of a host

    def handle(self, exchange: Exchange) -> None:
        route = (exchange.method, exchange.path)
        if exchange.method == "POST" and exchange.path in _RELAYED_PATHS:
            self.relay(exchange)
        elif route == ("GET", "/health"):
            serving = any(each.in_rotation for each in self.backends)
            exchange.respond(200 if serving else 503, b"")
        elif route == ("GET", "/v1/models"):
            card = {"id": self.model, "object": "model", "created": 0, "owned_by": "rackgate"}
            exchange.respond(200, json_bytes({"object": "list", "data": [card]}))
        elif route == ("GET", "/status"):
            exchange.respond(200, json_bytes(self.status()))
        elif route == ("GET", "/metrics"):
            exchange.respond(200, self.metrics(), content_type=PROMETHEUS_TEXT)
        else:
            exchange.respond(404, openai_error(404, "Not Found", "NotFoundError"))

    def relay(self, exchange: Exchange) -> None:
        """Relay a request, or refuse it if too many are in flight."""
        request_id = exchange.headers.get("x-request-id") or uuid.uuid4().hex
        if self.in_flight >= self.knobs.max_in_flight:
            self.answered["refused"] += 1
            body = openai_error(429, "too many requests in flight", "RateLimitError")
            exchange.respond(429, body, headers={"retry-after": "1", "x-request-id": request_id})
            return
        self.in_flight += 1
        Relay(self, exchange, request_id).attempt()

    def choose(self, tried: AbstractSet[str]) -> Backend | None:
        candidates = [each for each in self.backends if each.in_rotation and each.entity not in tried]
        if not candidates:
            return None
        if tried:
            self.failovers += 1
        chosen = min(candidates, key=lambda each: ((each.outstanding + 1) / each.weight, each.last_turn))
        self.turns += 1
        chosen.last_turn = self.turns
        return chosen

    def failed(self, backend: Backend, detail: str, *, hung: bool) -> None:
        backend.failures += 1
        if self.knobs.health_checks:
            backend.needs_token = backend.needs_token or hung
            self.set_rotation(backend, into=False, detail=detail)

    def finished(self, *, ok: bool) -> None:
        self.in_flight -= 1
        self.answered["ok" if ok else "failed"] += 1

    async def check_all(self) -> None:
        """Check each engine once, before the first request."""
        await asyncio.gather(*(self.check(each, _FIRST_TIMEOUT_S) for each in self.backends))

    async def watch(self, backend: Backend) -> None:
        """Check one engine periodically."""
        while True:
            await asyncio.sleep(self.knobs.health_interval_s)
            await self.check(backend)

    async def check(self, backend: Backend, timeout_s: float = _CHECK_TIMEOUT_S) -> None:
        """Request the health of an engine, and a token if it hung before or was never checked."""
        try:
            status, _ = await fetch(backend, _HEALTH_REQUEST, timeout_s)
            if status == 200 and backend.needs_token:
                status, _ = await fetch(backend, self.token_request(), timeout_s)
        except TimeoutError:
            backend.bad_checks += 1
            if backend.needs_token or backend.bad_checks >= _BAD_CHECKS_OUT:
                backend.needs_token = True
                self.set_rotation(backend, into=False, detail="health check timed out")
        except UpstreamLost as problem:
            self.set_rotation(backend, into=False, detail=str(problem))
        else:
            backend.bad_checks = 0
            if status == 200:
                backend.needs_token = False
            self.set_rotation(backend, into=status == 200, detail="" if status == 200 else f"HTTP {status}")

    def token_request(self) -> bytes:
        messages = [{"role": "user", "content": "ready?"}]
        body = json_bytes({"model": self.model, "messages": messages, "max_tokens": 1})
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: engine\r\ncontent-length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def set_rotation(self, backend: Backend, *, into: bool, detail: str) -> None:
        if into and backend.since_s and not self.knobs.readmits:
            return
        if backend.in_rotation != into or not backend.since_s:
            backend.in_rotation = into
            backend.since_s = self.loop.time()
        backend.detail = detail

    def status(self) -> dict[str, Any]:
        """Return the state of the gateway; `since_s` are seconds of CLOCK_MONOTONIC."""
        return {
            "in_flight": self.in_flight,
            "answered": self.answered,
            "failovers": self.failovers,
            "engines": [
                {
                    "engine": backend.entity,
                    "in_rotation": backend.in_rotation,
                    "since_s": backend.since_s,
                    "outstanding": backend.outstanding,
                    "requests": backend.requests,
                    "failures": backend.failures,
                    "detail": backend.detail,
                }
                for backend in self.backends
            ],
        }

    def metrics(self) -> bytes:
        """Return the state as a Prometheus page."""
        rows: list[str] = ["# TYPE gateway_in_flight gauge", f"gateway_in_flight {self.in_flight}"]
        rows.append("# TYPE gateway_answers_total counter")
        rows += [f'gateway_answers_total{{outcome="{key}"}} {count}' for key, count in self.answered.items()]
        rows += ["# TYPE gateway_failovers_total counter", f"gateway_failovers_total {self.failovers}"]
        for name, kind, attribute in (
            ("gateway_engine_in_rotation", "gauge", "in_rotation"),
            ("gateway_engine_requests_total", "counter", "requests"),
            ("gateway_engine_failures_total", "counter", "failures"),
        ):
            rows.append(f"# TYPE {name} {kind}")
            rows += [
                f'{name}{{engine="{each.entity}"}} {int(getattr(each, attribute))}' for each in self.backends
            ]
        return ("\n".join(rows) + "\n").encode()


def main() -> None:
    """Run the gateway that standard input describes."""
    _Gateway(read_plan()).run()


if __name__ == "__main__":
    main()
