"""Makes the requests of one endpoint from the plan and holds the transport that sends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rackgate.engines.protocols.protocol import ChatProtocol, protocol_named
from rackgate.loadgen.http.memory_limit import MemoryLimit
from rackgate.loadgen.http.transport import Server, Transport
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.requests.prompts import PromptSource, UniformPrompts, VariedPrompts
from rackgate.loadgen.requests.trace import TraceRequest
from rackgate.loadgen.worker.attempt import Attempt, RequestSettings
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.sample import Outcome, Sample, traceparent_of


class EndpointClient:
    """Makes and numbers the requests of one endpoint and holds the transport that sends them.

    The worker's clients share the `memory` limit.
    """

    def __init__(
        self,
        plan: LoadPlan,
        number: int,
        transport: Transport,
        *,
        memory: MemoryLimit | None = None,
        trace: Sequence[TraceRequest] = (),
    ) -> None:
        self.endpoint: Endpoint = plan.endpoints[number]
        self.transport = transport
        self.number = number
        self.protocol = protocol_named(self.endpoint.protocol)
        self.settings = RequestSettings.of(
            self.endpoint, self.protocol, plan.load.limits, memory or MemoryLimit(), plan.load.expect
        )
        self.in_flight = 0
        self.conversations_started = 0
        self.ramp_requests = 0
        self._plan = plan
        self._name = f"rg-{plan.digest}-{number}"
        self._prompts = _prompts(plan, self.endpoint, self.protocol, trace)
        self._head = _head(self.endpoint, self.protocol)

    def request_id(self, kind: str, index: int) -> str:
        """Return the id of a request."""
        return f"{self._name}-{kind}{index}"

    def request(self, kind: str, index: int) -> tuple[str, bytes]:
        """Return id and bytes of a request, the same for the same plan."""
        request_id = self.request_id(kind, index)
        body = self._prompts.body(kind, index // self._plan.load.repeats)
        head = (
            f"{self._head}\r\nX-Request-Id: {request_id}\r\ntraceparent: {traceparent_of(request_id)}"
            f"\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return request_id, head.encode("latin-1") + body

    def attempt(
        self, request_id: str, scheduled_ns: int, on_finished: Callable[[Attempt], object]
    ) -> Attempt:
        """Return the attempt of a request that is about to be sent."""
        return Attempt(self.settings, request_id, scheduled_ns, on_finished)

    def dropped(self, request_id: str, scheduled_ns: int) -> Sample:
        """Return the sample of a request that was dropped at the concurrency limit."""
        return Sample(
            request_id=request_id,
            engine=self.endpoint.entity,
            load=self._plan.load.name,
            label=self._plan.label,
            outcome=Outcome.DROPPED,
            scheduled_ns=scheduled_ns,
            look=self._plan.look,
            detail=f"{self.in_flight} in flight",
        )


def _prompts(
    plan: LoadPlan, endpoint: Endpoint, protocol: ChatProtocol, trace: Sequence[TraceRequest]
) -> PromptSource:
    load, identity = plan.load, f"{plan.identity}|{endpoint.entity}"
    if not load.plain:
        return VariedPrompts(protocol, load, model=endpoint.model, identity=identity, trace=trace)
    return UniformPrompts(
        protocol,
        model=endpoint.model,
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        identity=identity,
    )


def _head(endpoint: Endpoint, protocol: ChatProtocol) -> str:
    server = Server.of(endpoint.url, endpoint.route)
    lines = [
        f"POST {server.target(protocol.path(endpoint.model))} HTTP/1.1",
        f"Host: {server.authority}",
        "Content-Type: application/json",
        f"Accept: {protocol.dialect.accept}",
        "Accept-Encoding: identity",
        "User-Agent: rackgate",
    ]
    for name, value in endpoint.headers.items():
        if any(character in f"{name}{value}" for character in "\r\n\0"):
            raise ValueError(f"header {name!r} of {endpoint.entity} holds a line end")
        lines.append(f"{name}: {value}")
    return "\r\n".join(lines)
