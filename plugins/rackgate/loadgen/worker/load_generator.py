"""Generates the load of one plan on an event loop: warm-up, open schedule or closed slots, drain, counts."""

from __future__ import annotations

import asyncio
import gc
import heapq
import time
from collections.abc import Callable, Iterator
from itertools import islice
from time import perf_counter_ns
from typing import Any

from rackgate.loadgen.http.memory_limit import MemoryLimit, longest_output_tokens
from rackgate.loadgen.http.transport import Server, Transport
from rackgate.loadgen.requests.arrivals import schedule_ns
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.requests.trace import trace_of
from rackgate.loadgen.worker.attempt import Attempt, TimeoutSweep
from rackgate.loadgen.worker.endpoint_client import EndpointClient
from rackgate.loadgen.worker.in_flight import InFlight
from rackgate.loadgen.worker.instrument_faults import client_factory, inject_fault
from rackgate.loadgen.worker.live_state import LiveState
from rackgate.loadgen.worker.loop_timing import AbsoluteTimer, LoopLagMonitor
from rackgate.loadgen.worker.request_sequences import Conversation, Slot
from rackgate.loadgen.worker.sample_writer import SampleWriter
from rackgate.loadgen.worker.start_barrier import wait_for_start

OPEN_CONNECTIONS_AHEAD = 8
COLLECT_EVERY_S = 30.0


class LoadGenerator:
    """Runs the load of one plan. `write` receives samples as whole lines, one or more at a time."""

    def __init__(
        self,
        plan: LoadPlan,
        write: Callable[[bytes], object],
        *,
        transport: Callable[[Server], Transport] | None = None,
    ) -> None:
        transport = transport or client_factory(plan.instrument_fault)
        self.plan = plan
        self._load = plan.load
        self._concurrency = len(plan.own_indexes(plan.load.concurrency))
        trace = trace_of(plan.load)
        self._trace_s = trace.moments_s if trace is not None else ()
        requests = trace.requests if trace is not None else ()
        longest = longest_output_tokens(plan.load, (request.output_tokens for request in requests))
        sample_writer = SampleWriter(plan, write)
        self.in_flight = flight = InFlight(plan, self._concurrency, sample_writer)
        memory = MemoryLimit.of(plan.load, longest, self._concurrency * len(plan.endpoints), flight.running)
        self._clients = [
            EndpointClient(
                plan,
                number,
                transport(Server.of(endpoint.url, endpoint.route)),
                memory=memory,
                trace=requests,
            )
            for number, endpoint in enumerate(plan.endpoints)
        ]
        self._sample_writer = sample_writer
        self._loop_lag = LoopLagMonitor()
        self._timeout_sweep = TimeoutSweep(flight.running)
        self._timer = AbsoluteTimer()

    def stop(self) -> None:
        """Start no more requests and end those in flight."""
        self._timer.cancel()
        self.in_flight.stop()

    async def run(self) -> dict[str, Any]:
        """Run the load and return its counts and moments."""
        self._timeout_sweep.start()
        if self.plan.warmup:
            await asyncio.gather(*(self._warm_up(client) for client in self._clients))
        await self._connect_ahead()
        self.in_flight.peak = 0
        gc.collect()
        gc.freeze()
        gc.disable()
        self._collect_garbage()
        cpu_s = time.process_time()
        begin_ns = perf_counter_ns() if self._load.open else await self._begin()
        self.in_flight.start_ns = self.in_flight.last_start_ns = begin_ns + round(self._load.ramp_s * 1e9)
        self._loop_lag.start()
        inject_fault(self.plan.instrument_fault, self)
        try:
            await (self._open() if self._load.open else self._closed())
        finally:
            self._loop_lag.stop()
            self._timeout_sweep.stop()
            self._timer.close()
            gc.enable()
            gc.unfreeze()
        self._sample_writer.finish()
        cpu_s = time.process_time() - cpu_s
        for client in self._clients:
            client.transport.close()
        return self._result(cpu_s)

    async def _begin(self) -> int:
        """Return the start of the load: now, or when the other workers are ready too."""
        return (
            perf_counter_ns()
            if self.plan.workers == 1
            else await wait_for_start(self.plan, lambda: self.in_flight.stopped)
        )

    @property
    def share_done(self) -> float:
        """The share of the plan that has been started, by time if the plan has no number of requests."""
        if self.plan.requests is not None:
            return (
                self.in_flight.scheduled * self.plan.workers / max(1, self.plan.requests * len(self._clients))
            )
        return (perf_counter_ns() - self.in_flight.start_ns) / 1e9 / (self._load.duration_s or 1.0)

    def live_state(self) -> LiveState:
        """Return the current counts."""
        return LiveState(
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
            "end_ns": max(self._sample_writer.end_ns, self.in_flight.last_start_ns),
            "steady_start_ns": self.in_flight.start_ns,
            "steady_end_ns": self.in_flight.last_start_ns,
            "scheduled": self.in_flight.scheduled,
            "started": self.in_flight.started,
            "dropped": self.in_flight.dropped,
            "outcomes": self._sample_writer.outcomes,
            "peak_in_flight": self.in_flight.peak,
            "cpu_s": cpu_s,
            "loop_lag_p99_ms": self._loop_lag.lag_ms(0.99),
            "stopped": self.in_flight.stopped,
        }

    async def _warm_up(self, client: EndpointClient) -> None:
        indexes = iter(self.plan.own_indexes(self._load.warmup_requests))

        async def slot() -> None:
            for index in indexes:
                if self.in_flight.stopped:
                    return
                request_id, request = client.request("w", index)
                ended: asyncio.Future[Attempt] = self.in_flight.loop.create_future()
                self.in_flight.send(
                    client, client.attempt(request_id, perf_counter_ns(), ended.set_result), request
                )
                self.in_flight.finished(client, await ended, warmup=True)

        await asyncio.gather(*(slot() for _ in range(min(self._concurrency, self._load.warmup_requests))))

    async def _connect_ahead(self) -> None:
        count = self._concurrency
        if self._load.open:
            count = min(count, OPEN_CONNECTIONS_AHEAD)
        await asyncio.gather(
            *(
                client.transport.prepare(count, connect_s=self._load.limits.connect_s)
                for client in self._clients
            )
        )

    async def _closed(self) -> None:
        step_ns = self._load.ramp_s * 1e9 / self._load.concurrency
        begin_ns = self.in_flight.start_ns - round(self._load.ramp_s * 1e9)
        left_ns = begin_ns - perf_counter_ns()
        if left_ns > 0:
            await asyncio.sleep((left_ns + 1_000_000) / 1e9)  # a timer may be a millisecond early
        slots = [
            Slot(self.in_flight, client, begin_ns + round(number * step_ns))
            for number in self.plan.own_indexes(self._load.concurrency)
            for client in self._clients
        ]
        self.in_flight.sequences.update(slots)
        for slot in slots:
            slot.prepare()  # each slot gets a request before any slot gets a second one
        for slot in slots:
            slot.start()
        if self._load.duration_s is None:
            await self.in_flight.idle.wait()
        else:
            await self._drain(self._load.ramp_s + self._load.duration_s)

    async def _open(self) -> None:
        turns = self._load.turns
        arrivals: Iterator[tuple[int, int, int]] = heapq.merge(
            *(self._arrivals(client) for client in self._clients)
        )
        arrivals = islice(arrivals, self.plan.worker, None, self.plan.workers)
        self.in_flight.start_ns = self.in_flight.last_start_ns = await self._begin()
        for offset, number, place in arrivals:
            client, index = self._clients[number], place * turns
            request_id, request = client.request("r", index)
            scheduled_ns = self.in_flight.start_ns + offset
            if scheduled_ns > perf_counter_ns():
                await self._timer.until(scheduled_ns)
            else:
                await asyncio.sleep(0)  # late, but started requests need their turn of the loop
            if self.in_flight.stopped:
                break
            if self.in_flight.at_limit(client):
                self.in_flight.drop(client, range(index, index + turns), scheduled_ns)
                continue
            conversation = Conversation(self.in_flight, client, index)
            self.in_flight.sequences.add(conversation)
            conversation.start(request_id, request, scheduled_ns)
        await self._drain(0.0)

    def _arrivals(self, client: EndpointClient) -> Iterator[tuple[int, int, int]]:
        """Yield (ns after the start, client number, arrival number) of each arrival at an endpoint."""
        offsets = schedule_ns(
            self._load,
            requests=(self.plan.requests or 0) // self._load.turns,
            endpoint=client.number,
            endpoints=len(self._clients),
            seed=self.plan.identity,
            trace_s=self._trace_s,
        )
        return ((offset, client.number, place) for place, offset in enumerate(offsets))

    async def _drain(self, after_s: float) -> None:
        """Wait until the requests in flight have finished or reached a limit, then end the rest."""
        limits = self._load.limits
        bound_s = min(limits.total_s, max(limits.first_token_s, limits.stall_s) + 1.0)
        if self.in_flight.sequences:
            self.in_flight.idle.clear()
            try:
                async with asyncio.timeout(after_s + bound_s):
                    await self.in_flight.idle.wait()
            except TimeoutError:
                self.stop()
                await self.in_flight.idle.wait()

    def _collect_garbage(self) -> None:
        """Collect young objects every 30 s, so that memory does not grow in a soak of days."""
        gc.collect(0)
        self.in_flight.loop.call_later(COLLECT_EVERY_S, self._collect_garbage)
