"""What holds requests in flight: a slot of a closed load, or one conversation of an open one."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from time import perf_counter_ns

from rackgate.loadgen.worker.attempt import Attempt
from rackgate.loadgen.worker.endpoint_client import Lane
from rackgate.loadgen.worker.in_flight import InFlight

PAUSE_AFTER_REFUSAL_S = 0.05
"""A closed loop whose requests are turned away at once would otherwise only count how fast that goes."""


class _Chain(ABC):
    """Requests on one lane, each started after the one before it has ended."""

    def __init__(self, in_flight: InFlight, lane: Lane) -> None:
        self._in_flight = in_flight
        self._lane = lane
        self._pause: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """End a pause now: the load is being stopped."""
        if self._pause is not None:
            self._pause.cancel()
            self._resume(perf_counter_ns())

    def _rest(self, until_ns: int) -> None:
        """Go on at that moment, which is then when the next request was due."""
        left_s = max(0, until_ns - perf_counter_ns()) / 1e9
        self._pause = self._in_flight.loop.call_later(left_s, self._resume, until_ns)

    def _resume(self, due_ns: int) -> None:
        self._pause = None
        self._next(due_ns)

    @abstractmethod
    def _next(self, due_ns: int) -> None:
        """Start the next request, due at that moment."""


class Slot(_Chain):
    """Holds one request in flight; the next ones are made while the present one is under way.

    From `begin_ns` to the end of the load's ramp its requests count as warm-up.
    """

    def __init__(self, in_flight: InFlight, lane: Lane, begin_ns: int) -> None:
        super().__init__(in_flight, lane)
        self._begin_ns = begin_ns
        self._prepared: deque[tuple[str, bytes]] = deque()
        self._ramping = bool(in_flight.plan.load.ramp_s)

    def start(self) -> None:
        """Begin."""
        if self._ramping:
            self._rest(self._begin_ns)
        else:
            self._next(perf_counter_ns())

    def _next(self, due_ns: int) -> None:
        in_flight, lane = self._in_flight, self._lane
        if self._ramping and perf_counter_ns() < in_flight.start_ns and not in_flight.stopped:
            index = (
                in_flight.plan.load.warmup_requests
                + in_flight.plan.worker
                + lane.ramped * in_flight.plan.workers
            )
            request_id, request = lane.request("w", index)
            lane.ramped += 1
            in_flight.carry(lane, lane.attempt(request_id, due_ns, self._ramp_ended), request)
            return
        self._ramping = False
        if not self._prepared:
            self.prepare()
        if not self._prepared or in_flight.over(due_ns):
            in_flight.ended(self)
            return
        request_id, request = self._prepared.popleft()
        in_flight.count_start(due_ns)
        in_flight.carry(lane, lane.attempt(request_id, due_ns, self._request_ended), request)
        if not self._prepared:
            self.prepare()

    def _ramp_ended(self, attempt: Attempt) -> None:
        self._in_flight.landed(self._lane, attempt, warmup=True)
        if attempt.turned_away:
            self._rest(perf_counter_ns() + round(PAUSE_AFTER_REFUSAL_S * 1e9))
        else:
            self._next(perf_counter_ns())

    def _request_ended(self, attempt: Attempt) -> None:
        in_flight = self._in_flight
        in_flight.landed(self._lane, attempt, warmup=False)
        if attempt.turned_away:
            self._rest(perf_counter_ns() + round(PAUSE_AFTER_REFUSAL_S * 1e9))
            return
        ended_ns = attempt.finish.t_ns if attempt.finish is not None else perf_counter_ns()
        think_s = in_flight.plan.load.think_s
        if think_s and self._prepared and not in_flight.stopped:
            self._rest(ended_ns + round(think_s * 1e9))
        else:
            self._next(ended_ns)

    def prepare(self) -> None:
        """Make the requests of the next conversation, which is one request if there are no turns."""
        lane, plan = self._lane, self._in_flight.plan
        first = (plan.worker + lane.taken * plan.workers) * plan.load.in_a_row
        until = first + plan.load.in_a_row
        until = until if plan.requests is None else min(until, plan.requests)
        for index in range(first, until):
            self._prepared.append(lane.request("r", index))
        lane.taken += 1


class Conversation(_Chain):
    """The requests of one arrival: the first one at its moment, the other turns each when it is due.

    The cap on what is in flight holds for every turn. One that it does not let start ends the
    conversation, for what comes behind it answers to it: it and they are dropped.
    """

    def __init__(self, in_flight: InFlight, lane: Lane, index: int) -> None:
        super().__init__(in_flight, lane)
        self._index = index
        self._left = in_flight.plan.load.turns

    def start(self, request_id: str, request: bytes, due_ns: int) -> None:
        """Begin with a request that is made already."""
        self._left -= 1
        self._index += 1
        in_flight, lane = self._in_flight, self._lane
        in_flight.count_start(due_ns)
        in_flight.carry(lane, lane.attempt(request_id, due_ns, self._request_ended), request)

    def _next(self, due_ns: int) -> None:
        in_flight, lane, index = self._in_flight, self._lane, self._index
        if in_flight.stopped:
            in_flight.ended(self)
        elif in_flight.full(lane):
            in_flight.drop(lane, range(index, index + self._left), due_ns)
            in_flight.ended(self)
        else:
            self.start(*lane.request("r", index), due_ns)

    def _request_ended(self, attempt: Attempt) -> None:
        in_flight = self._in_flight
        in_flight.landed(self._lane, attempt, warmup=False)
        if not self._left or in_flight.stopped:
            in_flight.ended(self)
            return
        ended_ns = attempt.finish.t_ns if attempt.finish is not None else perf_counter_ns()
        self._rest(ended_ns + round(in_flight.plan.load.think_s * 1e9))
