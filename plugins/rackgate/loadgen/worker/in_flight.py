"""The requests of a load that are in flight: sent, limited, counted and passed on when finished."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from time import perf_counter_ns

from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.worker.attempt import Attempt
from rackgate.loadgen.worker.endpoint_client import EndpointClient
from rackgate.loadgen.worker.sample_writer import SampleWriter


class InFlight:
    """Sends the requests of a plan within its concurrency, and passes finished ones to `sample_writer`.

    `start_ns` and `last_start_ns` are the first and the last scheduled start. `idle` is set when no sequence
    will start another request.
    """

    def __init__(self, plan: LoadPlan, concurrency: int, sample_writer: SampleWriter) -> None:
        self.plan = plan
        self.loop = asyncio.get_running_loop()
        self.idle = asyncio.Event()
        self.running: dict[Attempt, None] = {}
        self.sequences: set[RequestSequence] = set()
        self.stopped = False
        self.scheduled = self.started = self.dropped = self.peak = 0
        self.start_ns = self.last_start_ns = 0
        self._duration_ns = None if plan.load.duration_s is None else plan.load.duration_s * 1e9
        self._concurrency = concurrency
        self._sample_writer = sample_writer

    def stop(self) -> None:
        """Start no more requests and end those in flight."""
        self.stopped = True
        for sequence in list(self.sequences):
            sequence.end_pause()
        now_ns = perf_counter_ns()
        for attempt in list(self.running):
            attempt.end(now_ns)

    def time_is_up(self, now_ns: int) -> bool:
        """Return whether the load was stopped or its duration is over."""
        duration_ns = self._duration_ns
        return self.stopped or (duration_ns is not None and now_ns - self.start_ns >= duration_ns)

    def at_limit(self, client: EndpointClient) -> bool:
        """Return whether an endpoint has as many requests in flight as the concurrency allows."""
        return client.in_flight >= self._concurrency

    def drop(self, client: EndpointClient, indexes: range, due_ns: int) -> None:
        """Count requests over the concurrency limit: the due one and the turns after it."""
        self.last_start_ns = max(self.last_start_ns, due_ns)
        for index in indexes:
            self.scheduled += 1
            self.dropped += 1
            self._sample_writer.add_sample(client.dropped(client.request_id("r", index), due_ns))

    def count_start(self, scheduled_ns: int) -> None:
        """Count a measured request that is about to be sent."""
        self.scheduled += 1
        self.started += 1
        self.last_start_ns = max(self.last_start_ns, scheduled_ns)

    def send(self, client: EndpointClient, attempt: Attempt, request: bytes) -> None:
        """Send a request; the attempt's callback must call `finished`."""
        client.in_flight += 1
        running = self.running
        running[attempt] = None
        self.peak = max(self.peak, len(running))
        if self.stopped:
            attempt.end(perf_counter_ns())
        client.transport.send(request, attempt, connect_s=client.settings.limits.connect_s)

    def finished(self, client: EndpointClient, attempt: Attempt, *, warmup: bool) -> None:
        """Pass a finished request on to the sample writer."""
        client.in_flight -= 1
        del self.running[attempt]
        self._sample_writer.add(attempt, warmup=warmup)

    def sequence_ended(self, sequence: RequestSequence) -> None:
        """Forget a sequence that will start no more requests."""
        self.sequences.discard(sequence)
        if not self.sequences:
            self.idle.set()


class RequestSequence(ABC):
    """Requests to one endpoint, each started after the one before it has finished, or after a pause."""

    def __init__(self, in_flight: InFlight, client: EndpointClient) -> None:
        self._in_flight = in_flight
        self._client = client
        self._pause: asyncio.TimerHandle | None = None

    def end_pause(self) -> None:
        """Resume now, because the load is being stopped."""
        if self._pause is not None:
            self._pause.cancel()
            self._resume(perf_counter_ns())

    def _pause_until(self, due_ns: int) -> None:
        """Start the next request at `due_ns`, which is then its scheduled start."""
        left_s = max(0, due_ns - perf_counter_ns()) / 1e9
        self._pause = self._in_flight.loop.call_later(left_s, self._resume, due_ns)

    def _resume(self, due_ns: int) -> None:
        self._pause = None
        self._next(due_ns)

    @abstractmethod
    def _next(self, due_ns: int) -> None:
        """Start the next request, scheduled at `due_ns`."""
