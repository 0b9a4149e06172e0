"""Offers one plan's load on an event loop: warm-up, schedule or slots, drain, and exact counts."""

from __future__ import annotations

import asyncio
import gc
import heapq
import time
from collections.abc import Callable, Iterator
from itertools import islice
from time import perf_counter_ns
from typing import Any

from rackgate.loadgen.http.memory_limit import Room, longest_output
from rackgate.loadgen.http.transport import Server, Transport
from rackgate.loadgen.requests.arrivals import schedule_ns
from rackgate.loadgen.requests.plan import Plan
from rackgate.loadgen.requests.trace import trace_of
from rackgate.loadgen.worker.attempt import Attempt
from rackgate.loadgen.worker.completion import Conclusions
from rackgate.loadgen.worker.endpoint_client import Lane
from rackgate.loadgen.worker.in_flight import InFlight
from rackgate.loadgen.worker.live_state import Now
from rackgate.loadgen.worker.loop_lag import Heartbeat
from rackgate.loadgen.worker.slots import Conversation, Slot
from rackgate.loadgen.worker.slow_instrument import client_of, spoil
from rackgate.loadgen.worker.start_barrier import meet
from rackgate.loadgen.worker.timeouts import Watch
from rackgate.loadgen.worker.timer import Alarm

OPEN_CONNECTIONS_AHEAD = 8
COLLECT_EVERY_S = 30.0


class Offering:
    """One load on its way. `write` takes finished samples as whole lines, one or more at a time."""

    def __init__(
        self,
        plan: Plan,
        write: Callable[[bytes], object],
        *,
        transport: Callable[[Server], Transport] | None = None,
    ) -> None:
        transport = transport or client_of(plan.handicap)
        self.plan = plan
        self._load = plan.load
        self._concurrency = len(plan.dealt(plan.load.concurrency))
        trace = trace_of(plan.load)
        self._trace_s = trace.moments_s if trace is not None else ()
        requests = trace.requests if trace is not None else ()
        longest = longest_output(plan.load, (request.output_tokens for request in requests))
        conclusions = Conclusions(plan, write)
        self.in_flight = flight = InFlight(plan, self._concurrency, conclusions)
        room = Room.of(plan.load, longest, self._concurrency * len(plan.endpoints), flight.running)
        self._lanes = [
            Lane(plan, number, transport(Server.of(endpoint.url, endpoint.route)), room=room, trace=requests)
            for number, endpoint in enumerate(plan.endpoints)
        ]
        self._conclusions = conclusions
        self._heartbeat = Heartbeat()
        self._watch = Watch(flight.running)
        self._alarm = Alarm()

    def stop(self) -> None:
        """End the load: nothing more is started, and what is in flight is ended."""
        self._alarm.wake()
        self.in_flight.stop()

    async def run(self) -> dict[str, Any]:
        """Offer the load and return its counts and moments."""
        self._watch.start()
        if self.plan.warmup:
            await asyncio.gather(*(self._warm_up(lane) for lane in self._lanes))
        await self._connect_ahead()
        self.in_flight.peak = 0
        gc.collect()
        gc.freeze()
        gc.disable()
        self._housekeeping()
        cpu_s = time.process_time()
        begin_ns = perf_counter_ns() if self._load.open else await self._begin()
        self.in_flight.start_ns = self.in_flight.last_start_ns = begin_ns + round(self._load.ramp_s * 1e9)
        self._heartbeat.start()
        spoil(self.plan.handicap, self)
        try:
            await (self._open() if self._load.open else self._closed())
        finally:
            self._heartbeat.stop()
            self._watch.stop()
            self._alarm.close()
            gc.enable()
            gc.unfreeze()
        self._conclusions.finish()
        cpu_s = time.process_time() - cpu_s
        for lane in self._lanes:
            lane.transport.close()
        return self._result(cpu_s)

    async def _begin(self) -> int:
        """Return the moment at which the load begins: now, or when the other workers are ready too."""
        return (
            perf_counter_ns()
            if self.plan.workers == 1
            else await meet(self.plan, lambda: self.in_flight.stopped)
        )

    @property
    def share_done(self) -> float:
        """How much of the plan has been started, 0 to 1; by time if the plan counts no requests."""
        if self.plan.requests is not None:
            return (
                self.in_flight.scheduled * self.plan.workers / max(1, self.plan.requests * len(self._lanes))
            )
        return (perf_counter_ns() - self.in_flight.start_ns) / 1e9 / (self._load.duration_s or 1.0)

    def now(self) -> Now:
        """Return where the load stands."""
        return Now(
            t_ns=perf_counter_ns(),
            start_ns=self.in_flight.start_ns,
            scheduled=self.in_flight.scheduled,
            started=self.in_flight.started,
            dropped=self.in_flight.dropped,
            in_flight=len(self.in_flight.running),
            share_done=self.share_done if self.in_flight.start_ns else 0.0,
        )

    def _result(self, cpu_s: float) -> dict[str, Any]:
        return {
            "start_ns": self.in_flight.start_ns,
            "end_ns": max(self._conclusions.end_ns, self.in_flight.last_start_ns),
            "steady_start_ns": self.in_flight.start_ns,
            "steady_end_ns": self.in_flight.last_start_ns,
            "scheduled": self.in_flight.scheduled,
            "started": self.in_flight.started,
            "dropped": self.in_flight.dropped,
            "outcomes": self._conclusions.outcomes,
            "peak_in_flight": self.in_flight.peak,
            "cpu_s": cpu_s,
            "loop_lag_p99_ms": self._heartbeat.late_ms(0.99),
            "stopped": self.in_flight.stopped,
        }

    async def _warm_up(self, lane: Lane) -> None:
        indexes = iter(self.plan.dealt(self._load.warmup_requests))

        async def slot() -> None:
            for index in indexes:
                if self.in_flight.stopped:
                    return
                request_id, request = lane.request("w", index)
                ended: asyncio.Future[Attempt] = self.in_flight.loop.create_future()
                self.in_flight.carry(
                    lane, lane.attempt(request_id, perf_counter_ns(), ended.set_result), request
                )
                self.in_flight.landed(lane, await ended, warmup=True)

        await asyncio.gather(*(slot() for _ in range(min(self._concurrency, self._load.warmup_requests))))

    async def _connect_ahead(self) -> None:
        count = self._concurrency
        if self._load.open:
            count = min(count, OPEN_CONNECTIONS_AHEAD)
        await asyncio.gather(
            *(lane.transport.prepare(count, connect_s=self._load.limits.connect_s) for lane in self._lanes)
        )

    async def _closed(self) -> None:
        step_ns = self._load.ramp_s * 1e9 / self._load.concurrency
        begin_ns = self.in_flight.start_ns - round(self._load.ramp_s * 1e9)
        left_ns = begin_ns - perf_counter_ns()
        if left_ns > 0:
            await asyncio.sleep((left_ns + 1_000_000) / 1e9)  # a timer may be a millisecond early
        slots = [
            Slot(self.in_flight, lane, begin_ns + round(number * step_ns))
            for number in self.plan.dealt(self._load.concurrency)
            for lane in self._lanes
        ]
        self.in_flight.chains.update(slots)
        for slot in slots:
            slot.prepare()  # before one of them makes its second request: all are to have one
        for slot in slots:
            slot.start()
        if self._load.duration_s is None:
            await self.in_flight.idle.wait()
        else:
            await self._drain(self._load.ramp_s + self._load.duration_s)

    async def _open(self) -> None:
        turns = self._load.turns
        arrivals: Iterator[tuple[int, int, int]] = heapq.merge(
            *(self._arrivals(lane) for lane in self._lanes)
        )
        arrivals = islice(arrivals, self.plan.worker, None, self.plan.workers)
        self.in_flight.start_ns = self.in_flight.last_start_ns = await self._begin()
        for offset, number, place in arrivals:
            lane, index = self._lanes[number], place * turns
            request_id, request = lane.request("r", index)
            scheduled_ns = self.in_flight.start_ns + offset
            if scheduled_ns > perf_counter_ns():
                await self._alarm.until(scheduled_ns)
            else:
                await asyncio.sleep(0)  # late, but what was started must come to its turn
            if self.in_flight.stopped:
                break
            if self.in_flight.full(lane):
                self.in_flight.drop(lane, range(index, index + turns), scheduled_ns)
                continue
            conversation = Conversation(self.in_flight, lane, index)
            self.in_flight.chains.add(conversation)
            conversation.start(request_id, request, scheduled_ns)
        await self._drain(0.0)

    def _arrivals(self, lane: Lane) -> Iterator[tuple[int, int, int]]:
        """Yield (ns after the start, lane, place) of each arrival on a lane."""
        offsets = schedule_ns(
            self._load,
            requests=(self.plan.requests or 0) // self._load.turns,
            endpoint=lane.number,
            endpoints=len(self._lanes),
            seed=self.plan.identity,
            trace_s=self._trace_s,
        )
        return ((offset, lane.number, place) for place, offset in enumerate(offsets))

    async def _drain(self, after_s: float) -> None:
        """Let what is in flight come to its end or to a limit, then end it."""
        limits = self._load.limits
        bound_s = min(limits.total_s, max(limits.first_token_s, limits.stall_s) + 1.0)
        if self.in_flight.chains:
            self.in_flight.idle.clear()
            try:
                async with asyncio.timeout(after_s + bound_s):
                    await self.in_flight.idle.wait()
            except TimeoutError:
                self.stop()
                await self.in_flight.idle.wait()

    def _housekeeping(self) -> None:
        """Collect young cycles now and then: a soak of days must not grow."""
        gc.collect(0)
        self.in_flight.loop.call_later(COLLECT_EVERY_S, self._housekeeping)
