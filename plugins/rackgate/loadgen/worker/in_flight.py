"""The requests of one load that are in flight: started, counted and handed on when they have ended."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import Protocol

from rackgate.loadgen.requests.plan import Plan
from rackgate.loadgen.worker.attempt import Attempt
from rackgate.loadgen.worker.completion import Conclusions
from rackgate.loadgen.worker.endpoint_client import Lane


class Chain(Protocol):
    """Requests that follow each other: a slot of a closed load, or a conversation of an open one."""

    def wake(self) -> None:
        """End a pause now: the load is being stopped."""


class InFlight:
    """Counts and limits the requests of a plan; their samples go to `conclusions`.

    `start_ns` and `last_start_ns` are the first and the last scheduled start. `idle` is set when no chain
    will start anything more.
    """

    def __init__(self, plan: Plan, concurrency: int, conclusions: Conclusions) -> None:
        self.plan = plan
        self.loop = asyncio.get_running_loop()
        self.idle = asyncio.Event()
        self.running: dict[Attempt, None] = {}
        self.chains: set[Chain] = set()
        self.stopped = False
        self.scheduled = self.started = self.dropped = self.peak = 0
        self.start_ns = self.last_start_ns = 0
        self._duration_ns = None if plan.load.duration_s is None else plan.load.duration_s * 1e9
        self._concurrency = concurrency
        self._conclusions = conclusions

    def stop(self) -> None:
        """End the load: nothing more is started, and what is in flight is ended."""
        self.stopped = True
        for chain in list(self.chains):
            chain.wake()
        now_ns = perf_counter_ns()
        for attempt in list(self.running):
            attempt.end(now_ns)

    def over(self, now_ns: int) -> bool:
        """Return whether nothing more is to be started."""
        duration_ns = self._duration_ns
        return self.stopped or (duration_ns is not None and now_ns - self.start_ns >= duration_ns)

    def full(self, lane: Lane) -> bool:
        """Return whether the cap lets nothing more start on a lane."""
        return lane.in_flight >= self._concurrency

    def drop(self, lane: Lane, indexes: range, due_ns: int) -> None:
        """Count requests that the cap does not let start: one that is due, and the turns behind it."""
        self.last_start_ns = max(self.last_start_ns, due_ns)
        for index in indexes:
            self.scheduled += 1
            self.dropped += 1
            self._conclusions.keep(lane.dropped(lane.request_id("r", index), due_ns))

    def count_start(self, scheduled_ns: int) -> None:
        """Count a request that is about to be carried."""
        self.scheduled += 1
        self.started += 1
        self.last_start_ns = max(self.last_start_ns, scheduled_ns)

    def carry(self, lane: Lane, attempt: Attempt, request: bytes) -> None:
        """Send a request; whoever is told of its end calls `landed`."""
        lane.in_flight += 1
        running = self.running
        running[attempt] = None
        self.peak = max(self.peak, len(running))
        if self.stopped:
            attempt.end(perf_counter_ns())
        lane.transport.send(request, attempt, connect_s=lane.terms.limits.connect_s)

    def landed(self, lane: Lane, attempt: Attempt, *, warmup: bool) -> None:
        """Take a request that has ended; its sample is made when there is time."""
        lane.in_flight -= 1
        del self.running[attempt]
        self._conclusions.add(attempt, warmup=warmup)

    def ended(self, chain: Chain) -> None:
        """A slot or a conversation will start nothing more."""
        self.chains.discard(chain)
        if not self.chains:
            self.idle.set()
