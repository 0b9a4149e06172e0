"""Request sequences: the slots of a closed load and the conversations of an open one."""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns

from rackgate.loadgen.worker.attempt import Attempt
from rackgate.loadgen.worker.endpoint_client import EndpointClient
from rackgate.loadgen.worker.in_flight import InFlight, RequestSequence

PAUSE_AFTER_REFUSAL_S = 0.05
"""A closed loop without this pause would flood a server that refuses every request at once."""


class Slot(RequestSequence):
    """Keeps one request in flight and prepares the next ones meanwhile.

    Requests between `begin_ns` and the end of the load's ramp count as warm-up.
    """

    def __init__(self, in_flight: InFlight, client: EndpointClient, begin_ns: int) -> None:
        super().__init__(in_flight, client)
        self._begin_ns = begin_ns
        self._prepared: deque[tuple[str, bytes]] = deque()
        self._ramping = bool(in_flight.plan.load.ramp_s)

    def start(self) -> None:
        """Start the first request."""
        if self._ramping:
            self._pause_until(self._begin_ns)
        else:
            self._next(perf_counter_ns())

    def _next(self, due_ns: int) -> None:
        in_flight, client = self._in_flight, self._client
        if self._ramping and perf_counter_ns() < in_flight.start_ns and not in_flight.stopped:
            index = (
                in_flight.plan.load.warmup_requests
                + in_flight.plan.worker
                + client.ramp_requests * in_flight.plan.workers
            )
            request_id, request = client.request("w", index)
            client.ramp_requests += 1
            in_flight.send(client, client.attempt(request_id, due_ns, self._ramp_ended), request)
            return
        self._ramping = False
        if not self._prepared:
            self.prepare()
        if not self._prepared or in_flight.time_is_up(due_ns):
            in_flight.sequence_ended(self)
            return
        request_id, request = self._prepared.popleft()
        in_flight.count_start(due_ns)
        in_flight.send(client, client.attempt(request_id, due_ns, self._request_ended), request)
        if not self._prepared:
            self.prepare()

    def _ramp_ended(self, attempt: Attempt) -> None:
        self._in_flight.finished(self._client, attempt, warmup=True)
        if attempt.rejected:
            self._pause_until(perf_counter_ns() + round(PAUSE_AFTER_REFUSAL_S * 1e9))
        else:
            self._next(perf_counter_ns())

    def _request_ended(self, attempt: Attempt) -> None:
        in_flight = self._in_flight
        in_flight.finished(self._client, attempt, warmup=False)
        if attempt.rejected:
            self._pause_until(perf_counter_ns() + round(PAUSE_AFTER_REFUSAL_S * 1e9))
            return
        ended_ns = attempt.finish.t_ns if attempt.finish is not None else perf_counter_ns()
        think_s = in_flight.plan.load.think_s
        if think_s and self._prepared and not in_flight.stopped:
            self._pause_until(ended_ns + round(think_s * 1e9))
        else:
            self._next(ended_ns)

    def prepare(self) -> None:
        """Make the requests of the next conversation; without turns that is one request."""
        client, plan = self._client, self._in_flight.plan
        first = (plan.worker + client.conversations_started * plan.workers) * plan.load.in_a_row
        until = first + plan.load.in_a_row
        until = until if plan.requests is None else min(until, plan.requests)
        for index in range(first, until):
            self._prepared.append(client.request("r", index))
        client.conversations_started += 1


class Conversation(RequestSequence):
    """The turns of one arrival: the first at its scheduled start, each later turn after a think time.

    A turn beyond the concurrency limit is dropped, and so are the turns after it, which depend on its answer.
    """

    def __init__(self, in_flight: InFlight, client: EndpointClient, index: int) -> None:
        super().__init__(in_flight, client)
        self._index = index
        self._left = in_flight.plan.load.turns

    def start(self, request_id: str, request: bytes, due_ns: int) -> None:
        """Start with a request that was made before its scheduled start."""
        self._left -= 1
        self._index += 1
        in_flight, client = self._in_flight, self._client
        in_flight.count_start(due_ns)
        in_flight.send(client, client.attempt(request_id, due_ns, self._request_ended), request)

    def _next(self, due_ns: int) -> None:
        in_flight, client, index = self._in_flight, self._client, self._index
        if in_flight.stopped:
            in_flight.sequence_ended(self)
        elif in_flight.at_limit(client):
            in_flight.drop(client, range(index, index + self._left), due_ns)
            in_flight.sequence_ended(self)
        else:
            self.start(*client.request("r", index), due_ns)

    def _request_ended(self, attempt: Attempt) -> None:
        in_flight = self._in_flight
        in_flight.finished(self._client, attempt, warmup=False)
        if not self._left or in_flight.stopped:
            in_flight.sequence_ended(self)
            return
        ended_ns = attempt.finish.t_ns if attempt.finish is not None else perf_counter_ns()
        self._pause_until(ended_ns + round(in_flight.plan.load.think_s * 1e9))
