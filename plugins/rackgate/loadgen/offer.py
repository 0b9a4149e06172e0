"""Offers one plan's load on an event loop: warm-up, schedule or slots, drain, and exact counts."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from contextlib import suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from rackgate.loadgen.arrivals import schedule_ns
from rackgate.loadgen.clock import Alarm
from rackgate.loadgen.handicap import spoil
from rackgate.loadgen.heartbeat import Heartbeat
from rackgate.loadgen.http1 import HttpClient
from rackgate.loadgen.lane import Lane
from rackgate.loadgen.now import Now
from rackgate.loadgen.spool import spool_line
from rackgate.loadgen.trace import trace_of
from rackgate.loadgen.transport import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from rackgate.loadgen.attempt import Attempt
    from rackgate.loadgen.plan import Plan
    from rackgate.loadgen.transport import Transport

__all__ = ["Offer"]

PAUSE_AFTER_REFUSAL_S = 0.05
"""A closed loop whose requests are turned away at once would otherwise only count how fast that goes."""

OPEN_CONNECTIONS_AHEAD = 8
CONCLUDE_AFTER_S = 0.002
CONCLUDE_AT_ONCE = 2
COLLECT_EVERY_S = 30.0


class Offer:
    """One load on its way. `write` takes each finished sample as a line."""

    def __init__(
        self,
        plan: Plan,
        write: Callable[[bytes], object],
        *,
        transport: Callable[[Server], Transport] = HttpClient,
    ) -> None:
        self._plan = plan
        self._write = write
        self._load = plan.load
        trace = trace_of(plan.load)
        self._trace_s = trace.moments_s if trace is not None else ()
        self._lanes = [
            Lane(
                plan,
                number,
                transport(Server.of(endpoint.url)),
                trace=trace.requests if trace is not None else (),
            )
            for number, endpoint in enumerate(plan.endpoints)
        ]
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._running: set[Attempt] = set()
        self._finished: deque[tuple[Attempt, bool]] = deque()
        self._concluding = False
        self._heartbeat = Heartbeat()
        self.scheduled = self.started = self.dropped = self.peak_in_flight = 0
        self.outcomes: dict[str, int] = {}
        self.start_ns = self.last_start_ns = self.end_ns = 0

    def stop(self) -> None:
        """End the load: nothing more is started, and what is in flight is ended."""
        self._stop.set()
        now_ns = perf_counter_ns()
        for attempt in list(self._running):
            attempt.end(now_ns)

    async def run(self) -> dict[str, Any]:
        """Offer the load and return its counts and moments."""
        if self._plan.warmup:
            await asyncio.gather(*(self._warm_up(lane) for lane in self._lanes))
        await self._connect_ahead()
        self.peak_in_flight = 0
        gc.collect()
        gc.freeze()
        gc.disable()
        self._housekeeping()
        cpu_s = time.process_time()
        begin_ns = perf_counter_ns()
        self.start_ns = self.last_start_ns = self.end_ns = begin_ns + round(self._load.ramp_s * 1e9)
        self._heartbeat.start()
        spoil(self._plan.handicap, self)
        try:
            await (self._open() if self._load.open else self._closed())
        finally:
            self._heartbeat.stop()
            gc.enable()
            gc.unfreeze()
        cpu_s = time.process_time() - cpu_s
        while self._finished:
            self._conclude_one()
        for lane in self._lanes:
            lane.transport.close()
        return self._result(cpu_s)

    @property
    def share_done(self) -> float:
        """How much of the plan has been started, 0 to 1; by time if the plan counts no requests."""
        if self._plan.requests is not None:
            return self.scheduled / max(1, self._plan.requests * len(self._lanes))
        return (perf_counter_ns() - self.start_ns) / 1e9 / (self._load.duration_s or 1.0)

    def now(self) -> Now:
        """Return where the load stands."""
        return Now(
            t_ns=perf_counter_ns(),
            start_ns=self.start_ns,
            scheduled=self.scheduled,
            started=self.started,
            dropped=self.dropped,
            in_flight=len(self._running),
            share_done=self.share_done if self.start_ns else 0.0,
        )

    def _result(self, cpu_s: float) -> dict[str, Any]:
        return {
            "start_ns": self.start_ns,
            "end_ns": max(self.end_ns, self.last_start_ns),
            "steady_start_ns": self.start_ns,
            "steady_end_ns": self.last_start_ns,
            "scheduled": self.scheduled,
            "started": self.started,
            "dropped": self.dropped,
            "outcomes": self.outcomes,
            "peak_in_flight": self.peak_in_flight,
            "cpu_s": cpu_s,
            "loop_lag_p99_ms": self._heartbeat.late_ms(0.99),
            "stopped": self._stop.is_set(),
        }

    async def _warm_up(self, lane: Lane) -> None:
        indexes = iter(range(self._load.warmup_requests))

        async def slot() -> None:
            for index in indexes:
                if self._stop.is_set():
                    return
                request_id, request = lane.request("w", index)
                await self._carry(lane, lane.attempt(request_id, perf_counter_ns()), request, warmup=True)

        await asyncio.gather(
            *(slot() for _ in range(min(self._load.concurrency, self._load.warmup_requests)))
        )

    async def _connect_ahead(self) -> None:
        count = self._load.concurrency
        if self._load.open:
            count = min(count, OPEN_CONNECTIONS_AHEAD)
        await asyncio.gather(
            *(lane.transport.prepare(count, connect_s=self._load.limits.connect_s) for lane in self._lanes)
        )

    async def _closed(self) -> None:
        step_ns = self._load.ramp_s * 1e9 / self._load.concurrency
        begin_ns = self.start_ns - round(self._load.ramp_s * 1e9)
        slots = [
            asyncio.ensure_future(self._slot(lane, begin_ns + round(number * step_ns)))
            for number in range(self._load.concurrency)
            for lane in self._lanes
        ]
        if self._load.duration_s is None:
            await asyncio.gather(*slots)
            return
        await self._drain(slots, self._load.ramp_s + self._load.duration_s)

    async def _ramp(self, lane: Lane, begin_ns: int) -> None:
        """Hold one request in flight from `begin_ns` to the end of the ramp; they count as warm-up."""
        await asyncio.sleep(max(0, begin_ns - perf_counter_ns()) / 1e9)
        while perf_counter_ns() < self.start_ns and not self._stop.is_set():
            request_id, request = lane.request("w", self._load.warmup_requests + lane.ramped)
            lane.ramped += 1
            await self._carry(lane, lane.attempt(request_id, perf_counter_ns()), request, warmup=True)

    async def _slot(self, lane: Lane, begin_ns: int) -> None:
        """Hold one request in flight; the next ones are made while the present one is under way."""
        if self._load.ramp_s:
            await self._ramp(lane, begin_ns)
        prepared: deque[tuple[str, bytes]] = deque()
        self._prepare(lane, prepared)
        free_ns = perf_counter_ns()
        while prepared and not self._over(free_ns):
            request_id, request = prepared.popleft()
            attempt = lane.attempt(request_id, free_ns)
            self._count_start(free_ns)
            self._loop.call_soon(self._prepare, lane, prepared)
            free_ns = await self._carry(lane, attempt, request, warmup=False)
            if attempt.turned_away:
                await asyncio.sleep(PAUSE_AFTER_REFUSAL_S)
                free_ns = perf_counter_ns()
            elif prepared and self._load.think_s:
                free_ns = await self._think(free_ns)
            self._prepare(lane, prepared)  # if it ended before there was time to make the next one

    async def _think(self, done_ns: int) -> int:
        """Wait until the next turn of a conversation is due, or the load ends, and return that moment."""
        due_ns = done_ns + round(self._load.think_s * 1e9)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), max(0, due_ns - perf_counter_ns()) / 1e9)
        return due_ns

    def _prepare(self, lane: Lane, prepared: deque[tuple[str, bytes]]) -> None:
        """Make the requests of the next conversation, which is one request if there are no turns."""
        planned = self._plan.requests
        turns = 0 if prepared else self._load.turns
        if planned is not None:
            turns = min(turns, planned - lane.taken)
        for _ in range(turns):
            prepared.append(lane.request("r", lane.taken))
            lane.taken += 1

    def _over(self, now_ns: int) -> bool:
        if self._stop.is_set():
            return True
        duration_s = self._load.duration_s
        return duration_s is not None and now_ns - self.start_ns >= duration_s * 1e9

    async def _open(self) -> None:
        turns = self._load.turns
        arrivals = sorted(
            (offset, lane.number, index)
            for lane in self._lanes
            for index, offset in enumerate(
                schedule_ns(
                    self._load,
                    requests=(self._plan.requests or 0) // turns,
                    endpoint=lane.number,
                    endpoints=len(self._lanes),
                    seed=self._plan.identity,
                    trace_s=self._trace_s,
                )
            )
        )
        self.start_ns = self.last_start_ns = self.end_ns = perf_counter_ns()
        tasks: set[asyncio.Future[int]] = set()
        alarm = Alarm()
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            for offset, number, index in arrivals:
                lane = self._lanes[number]
                request_id, request = lane.request("r", index * turns)
                scheduled_ns = self.start_ns + offset
                if scheduled_ns > perf_counter_ns():
                    waiting = asyncio.ensure_future(alarm.until(scheduled_ns))
                    await asyncio.wait((waiting, stopped), return_when=asyncio.FIRST_COMPLETED)
                    waiting.cancel()
                else:
                    await asyncio.sleep(0)  # late, but what was started must come to its turn
                if self._stop.is_set():
                    break
                self._arrive(lane, index * turns, (request_id, request), scheduled_ns, tasks)
        finally:
            stopped.cancel()
            alarm.close()
        await self._drain(tasks, 0.0)

    def _arrive(
        self,
        lane: Lane,
        index: int,
        made: tuple[str, bytes],
        scheduled_ns: int,
        tasks: set[asyncio.Future[int]],
    ) -> None:
        request_id, request = made
        if lane.in_flight >= self._load.concurrency:
            self.last_start_ns = scheduled_ns
            for turn in range(self._load.turns):
                name = lane.request_id("r", index + turn)
                self.scheduled += 1
                self.dropped += 1
                self._write(spool_line(lane.dropped(name, scheduled_ns)))
            return
        self._count_start(scheduled_ns)
        attempt = lane.attempt(request_id, scheduled_ns)
        lane.in_flight += 1  # counted now, so that arrivals of one instant see each other
        carried = self._carry(lane, attempt, request, warmup=False, counted=True)
        task = asyncio.ensure_future(
            carried if self._load.turns == 1 else self._go_on(lane, carried, index + 1)
        )
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _drain(self, tasks: Any, after_s: float) -> None:
        """Let what is in flight come to its end or to a limit, then end it."""
        limits = self._load.limits
        bound_s = min(limits.total_s, max(limits.first_token_s, limits.stall_s) + 1.0)
        pending = [task for task in tasks if not task.done()]
        if pending:
            _, still = await asyncio.wait(pending, timeout=after_s + bound_s)
            if still:
                self.stop()
            await asyncio.gather(*pending)

    async def _go_on(self, lane: Lane, first: Coroutine[None, None, int], index: int) -> int:
        """Carry the first request of a conversation and then the other ones, each when it is due."""
        done_ns = await first
        for later in range(index, index + self._load.turns - 1):
            request_id, request = lane.request("r", later)
            due_ns = await self._think(done_ns)
            if self._stop.is_set():
                break
            self._count_start(due_ns)
            done_ns = await self._carry(lane, lane.attempt(request_id, due_ns), request, warmup=False)
        return done_ns

    def _count_start(self, scheduled_ns: int) -> None:
        self.scheduled += 1
        self.started += 1
        self.last_start_ns = max(self.last_start_ns, scheduled_ns)

    async def _carry(
        self, lane: Lane, attempt: Attempt, request: bytes, *, warmup: bool, counted: bool = False
    ) -> int:
        """Carry one request and return when it ended; its sample is made when there is time."""
        if not counted:
            lane.in_flight += 1
        self._running.add(attempt)
        self.peak_in_flight = max(self.peak_in_flight, len(self._running))
        if self._stop.is_set():
            attempt.end(perf_counter_ns())
        finish = await attempt.run(lane.transport, request)
        lane.in_flight -= 1
        self._running.discard(attempt)
        self._finished.append((attempt, warmup))
        if not self._concluding:
            self._concluding = True
            self._loop.call_later(CONCLUDE_AFTER_S, self._conclude_next)
        return finish.t_ns

    def _conclude_next(self) -> None:
        """Make a few samples per turn of the loop: reads of other streams come first."""
        for _ in range(min(len(self._finished), CONCLUDE_AT_ONCE)):
            self._conclude_one()
        if self._finished:
            self._loop.call_soon(self._conclude_next)
        else:
            self._concluding = False

    def _conclude_one(self) -> None:
        attempt, warmup = self._finished.popleft()
        sample = attempt.sample(
            load=self._load.name, label=self._plan.label, look=self._plan.look, warmup=warmup
        )
        if not warmup:
            self.outcomes[sample.outcome] = self.outcomes.get(sample.outcome, 0) + 1
            self.end_ns = max(self.end_ns, sample.done_ns or 0)
        self._write(spool_line(sample))

    def _housekeeping(self) -> None:
        """Collect young cycles now and then: a soak of days must not grow."""
        gc.collect(0)
        self._loop.call_later(COLLECT_EVERY_S, self._housekeeping)
