"""One endpoint's requests: made from the plan, numbered, and carried by one transport."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rackgate.engines.protocols.protocol import ChatProtocol, protocol_named
from rackgate.loadgen.http.memory_limit import Room
from rackgate.loadgen.http.transport import Server, Transport
from rackgate.loadgen.requests.plan import Plan
from rackgate.loadgen.requests.prompts import Prompts, PromptSource
from rackgate.loadgen.requests.trace import TraceRequest
from rackgate.loadgen.requests.varied import VariedPrompts
from rackgate.loadgen.worker.attempt import Attempt, Terms
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.sample import Outcome, Sample, traceparent_of


class Lane:
    """One endpoint's requests: made from the plan, numbered, and carried by one transport.

    The `room` for answers is shared with other lanes, or its own.
    """

    def __init__(
        self,
        plan: Plan,
        number: int,
        transport: Transport,
        *,
        room: Room | None = None,
        trace: Sequence[TraceRequest] = (),
    ) -> None:
        self.endpoint: Endpoint = plan.endpoints[number]
        self.transport = transport
        self.number = number
        self.protocol = protocol_named(self.endpoint.protocol)
        self.terms = Terms.of(
            self.endpoint, self.protocol, plan.load.limits, room or Room(), plan.load.expect
        )
        self.in_flight = 0
        self.taken = 0
        self.ramped = 0
        self._plan = plan
        self._name = f"rg-{plan.digest}-{number}"
        self._prompts = _prompts(plan, self.endpoint, self.protocol, trace)
        self._head = _head(self.endpoint, self.protocol)

    def request_id(self, kind: str, index: int) -> str:
        """Return the id of a request."""
        return f"{self._name}-{kind}{index}"

    def request(self, kind: str, index: int) -> tuple[str, bytes]:
        """Return id and bytes of a request; the same plan gives the same bytes."""
        request_id = self.request_id(kind, index)
        body = self._prompts.body(kind, index // self._plan.load.repeats)
        head = (
            f"{self._head}\r\nX-Request-Id: {request_id}\r\ntraceparent: {traceparent_of(request_id)}"
            f"\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return request_id, head.encode("latin-1") + body

    def attempt(self, request_id: str, scheduled_ns: int, then: Callable[[Attempt], object]) -> Attempt:
        """Return a request about to be sent; `then` is called when it has ended."""
        return Attempt(self.terms, request_id, scheduled_ns, then)

    def dropped(self, request_id: str, scheduled_ns: int) -> Sample:
        """Return the sample of a request that was never started."""
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
    plan: Plan, endpoint: Endpoint, protocol: ChatProtocol, trace: Sequence[TraceRequest]
) -> PromptSource:
    load, identity = plan.load, f"{plan.identity}|{endpoint.entity}"
    if not load.plain:
        return VariedPrompts(protocol, load, model=endpoint.model, identity=identity, trace=trace)
    return Prompts(
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
