"""What holds requests in flight: a slot of a closed load, or one conversation of an open one."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING

from rackgate.loadgen.worker.attempt import Attempt
from rackgate.loadgen.worker.endpoint_client import Lane

if TYPE_CHECKING:
    from rackgate.loadgen.worker.offer import Offering

PAUSE_AFTER_REFUSAL_S = 0.05
"""A closed loop whose requests are turned away at once would otherwise only count how fast that goes."""


class _Chain(ABC):
    """Requests on one lane, each started after the one before it has ended."""

    def __init__(self, offer: Offering, lane: Lane) -> None:
        self._offer = offer
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
        self._pause = self._offer.loop.call_later(left_s, self._resume, until_ns)

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

    def __init__(self, offer: Offering, lane: Lane, begin_ns: int) -> None:
        super().__init__(offer, lane)
        self._begin_ns = begin_ns
        self._prepared: deque[tuple[str, bytes]] = deque()
        self._ramping = bool(offer.plan.load.ramp_s)

    def start(self) -> None:
        """Begin."""
        if self._ramping:
            self._rest(self._begin_ns)
        else:
            self._next(perf_counter_ns())

    def _next(self, due_ns: int) -> None:
        offer, lane = self._offer, self._lane
        if self._ramping and perf_counter_ns() < offer.start_ns and not offer.stopped:
            index = offer.plan.load.warmup_requests + offer.plan.worker + lane.ramped * offer.plan.workers
            request_id, request = lane.request("w", index)
            lane.ramped += 1
            offer.carry(lane, lane.attempt(request_id, due_ns, self._ramp_ended), request)
            return
        self._ramping = False
        if not self._prepared:
            self.prepare()
        if not self._prepared or offer.over(due_ns):
            offer.ended(self)
            return
        request_id, request = self._prepared.popleft()
        offer.count_start(due_ns)
        offer.carry(lane, lane.attempt(request_id, due_ns, self._request_ended), request)
        if not self._prepared:
            self.prepare()

    def _ramp_ended(self, attempt: Attempt) -> None:
        self._offer.landed(self._lane, attempt, warmup=True)
        if attempt.turned_away:
            self._rest(perf_counter_ns() + round(PAUSE_AFTER_REFUSAL_S * 1e9))
        else:
            self._next(perf_counter_ns())

    def _request_ended(self, attempt: Attempt) -> None:
        offer = self._offer
        offer.landed(self._lane, attempt, warmup=False)
        if attempt.turned_away:
            self._rest(perf_counter_ns() + round(PAUSE_AFTER_REFUSAL_S * 1e9))
            return
        ended_ns = attempt.finish.t_ns if attempt.finish is not None else perf_counter_ns()
        think_s = offer.plan.load.think_s
        if think_s and self._prepared and not offer.stopped:
            self._rest(ended_ns + round(think_s * 1e9))
        else:
            self._next(ended_ns)

    def prepare(self) -> None:
        """Make the requests of the next conversation, which is one request if there are no turns."""
        lane, plan = self._lane, self._offer.plan
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

    def __init__(self, offer: Offering, lane: Lane, index: int) -> None:
        super().__init__(offer, lane)
        self._index = index
        self._left = offer.plan.load.turns

    def start(self, request_id: str, request: bytes, due_ns: int) -> None:
        """Begin with a request that is made already."""
        self._left -= 1
        self._index += 1
        offer, lane = self._offer, self._lane
        offer.count_start(due_ns)
        offer.carry(lane, lane.attempt(request_id, due_ns, self._request_ended), request)

    def _next(self, due_ns: int) -> None:
        offer, lane, index = self._offer, self._lane, self._index
        if offer.stopped:
            offer.ended(self)
        elif offer.full(lane):
            offer.drop(lane, range(index, index + self._left), due_ns)
            offer.ended(self)
        else:
            self.start(*lane.request("r", index), due_ns)

    def _request_ended(self, attempt: Attempt) -> None:
        offer = self._offer
        offer.landed(self._lane, attempt, warmup=False)
        if not self._left or offer.stopped:
            offer.ended(self)
            return
        ended_ns = attempt.finish.t_ns if attempt.finish is not None else perf_counter_ns()
        self._rest(ended_ns + round(offer.plan.load.think_s * 1e9))
