"""One request in flight: its moments, its limits, and the sweep that enforces the limits."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from time import perf_counter_ns

from rackgate.engines.protocols.answer import Ending
from rackgate.engines.protocols.protocol import AnswerReader, ChatProtocol
from rackgate.loadgen.http.head import Head
from rackgate.loadgen.http.memory_limit import MemoryLimit
from rackgate.loadgen.http.transport import Exchange, Finish
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Limits

AFTER_DONE_NS = 1_000_000_000
REFUSALS = frozenset({429, 503})
"""HTTP statuses by which an engine refuses a request."""

_ERROR_BODY_BYTES = 65536
_SWEEP_EVERY_S = 0.05


def next_deadline(
    limits: Limits, sent_ns: int, last_token_ns: int | None, *, done: bool = False
) -> tuple[int, Ending, str]:
    """Return the next deadline of a sent request, how the request ends then, and why.

    Only tokens move the deadline, not keep-alives or other frames.
    """
    total_ns = sent_ns + round(limits.total_s * 1e9)
    if done and last_token_ns is not None:
        return last_token_ns + AFTER_DONE_NS, Ending.COMPLETE, ""
    if last_token_ns is None:
        moment, ending, detail = (
            sent_ns + round(limits.first_token_s * 1e9),
            Ending.TIMEOUT,
            f"no token within {limits.first_token_s:g} s",
        )
    else:
        moment, ending, detail = (
            last_token_ns + round(limits.stall_s * 1e9),
            Ending.STALLED,
            f"token stall: none for {limits.stall_s:g} s",
        )
    if total_ns <= moment:
        return total_ns, Ending.TIMEOUT, f"not done within {limits.total_s:g} s"
    return moment, ending, detail


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettings:
    """Settings of all requests to an endpoint; no limit can be reached within `shortest_limit_ns`."""

    endpoint: Endpoint
    protocol: ChatProtocol
    limits: Limits
    shortest_limit_ns: int
    memory: MemoryLimit
    expected: re.Pattern[str] | None = None

    @classmethod
    def of(
        cls,
        endpoint: Endpoint,
        protocol: ChatProtocol,
        limits: Limits,
        memory: MemoryLimit,
        expect: str | None = None,
    ) -> RequestSettings:
        """Return an endpoint's settings: all of a worker share `memory`; `expect` is a pattern."""
        nearest_s = min(limits.first_token_s, limits.total_s, limits.stall_s)
        shortest_limit_ns = min(AFTER_DONE_NS, round(1e9 * nearest_s))
        return cls(
            endpoint=endpoint, protocol=protocol, limits=limits, shortest_limit_ns=shortest_limit_ns,
            memory=memory,
            expected=None if expect is None else re.compile(expect),
        )  # fmt: skip


class Attempt:
    """A request in flight, and the transport's sink for its response.

    `on_finished` is called with it at its end. Its limits are checked at `next_check_ns` again.
    """

    __slots__ = (
        "_ended", "_exchange", "_on_finished", "_overdue", "body_bytes", "connected_ns", "error_body",
        "finish", "first_byte_ns", "head", "next_check_ns", "reader", "request_id", "scheduled_ns", "sent_ns",
        "settings",
    )  # fmt: skip

    def __init__(
        self,
        settings: RequestSettings,
        request_id: str,
        scheduled_ns: int,
        on_finished: Callable[[Attempt], object],
    ) -> None:
        self.settings = settings
        self._on_finished = on_finished
        self._exchange: Exchange | None = None
        self.reader: AnswerReader | None = None
        self.body_bytes = 0
        self._ended = self._overdue = False
        self.request_id = request_id
        self.scheduled_ns = scheduled_ns
        self.sent_ns: int | None = None
        self.connected_ns: int | None = None
        self.first_byte_ns: int | None = None
        self.head: Head | None = None
        self.error_body = b""
        self.finish: Finish | None = None
        self.next_check_ns = scheduled_ns + settings.shortest_limit_ns

    @property
    def rejected(self) -> bool:
        """True if no engine accepted the request: no connection, or a refusal."""
        unconnected = self.finish is not None and self.finish.ending is Ending.UNCONNECTED
        return unconnected or (self.head is not None and self.head.status in REFUSALS)

    def end(self, now_ns: int) -> None:
        """End it with the load: with a limit's outcome if the limit is past, else cancelled."""
        self._ended = True
        if self._exchange is None:  # still connecting, which has a limit of its own
            return
        self._exchange.process_reads()
        moment, ending, detail = self._deadline()
        if now_ns >= moment:
            self._exchange.abort(ending, detail)
        else:
            self._exchange.abort(Ending.CANCELLED)

    def check_limits(self, now_ns: int) -> None:
        """End the request if it is overdue at two checks in a row, else set the next check.

        At the first check, data that had arrived in time may not have been read from the socket yet.
        """
        if self._exchange is None or self.finish is not None:
            return
        self._exchange.process_reads()
        moment, ending, detail = self._deadline()
        if moment > now_ns:
            self._overdue = False
            # A token or [DONE] can bring the deadline forward, but never nearer than the shortest limit.
            self.next_check_ns = min(moment, now_ns + self.settings.shortest_limit_ns)
        elif self._overdue:
            self._exchange.abort(ending, detail)
        else:
            self._overdue = True

    def abort_oversized(self, detail: str) -> None:
        """End it as malformed because its response is too large."""
        if self._exchange is not None and self.finish is None:
            self._exchange.abort(Ending.MALFORMED, detail)

    def on_sent(self, t_ns: int, exchange: Exchange, connecting_ns: int | None = None) -> None:
        """Set `sent_ns`: to the start of connecting if a connection was opened for this request."""
        self.sent_ns = t_ns
        if connecting_ns is not None:
            self.sent_ns, self.connected_ns = connecting_ns, t_ns
        self._exchange = exchange
        if self._ended:
            asyncio.get_running_loop().call_soon(exchange.abort, Ending.CANCELLED)

    def on_byte(self, t_ns: int) -> None:
        """Set `first_byte_ns`."""
        self.first_byte_ns = t_ns

    def on_head(self, t_ns: int, head: Head) -> None:  # noqa: ARG002
        """Choose the reader by the response's media type."""
        self.head = head
        if head.status == 200:
            self.reader = self.settings.protocol.reader(streamed=head.media_type != b"application/json")
            if head.content_encoding != b"identity" and self._exchange is not None:
                coding = head.content_encoding.decode("latin-1")
                self._exchange.abort(Ending.MALFORMED, f"content-encoding {coding} was not asked for")

    def on_body(self, reads: list[tuple[int, bytes]]) -> None:
        """Read pieces of the body within the memory limits."""
        size, memory = 0, self.settings.memory
        for _, data in reads:
            size += len(data)
        self.body_bytes += size
        memory.used_bytes += size
        if self.body_bytes > memory.per_response_bytes:
            self.abort_oversized(memory.too_large)
        elif self.reader is not None:
            self.reader.take(reads)
        elif len(self.error_body) < _ERROR_BODY_BYTES:
            self.error_body += b"".join([data for _, data in reads])
        if memory.used_bytes > memory.total_bytes:
            memory.abort_largest()

    def on_end(self, finish: Finish) -> None:
        """Set `finish` and call `on_finished`."""
        self.finish = finish
        self.settings.memory.used_bytes -= self.body_bytes
        self._on_finished(self)

    def _deadline(self) -> tuple[int, Ending, str]:
        sent, limits = self.connected_ns or self.sent_ns or self.scheduled_ns, self.settings.limits
        if self.reader is None:
            return next_deadline(limits, sent, None)
        return next_deadline(limits, sent, self.reader.last_token_ns, done=self.reader.done_seen)


class TimeoutSweep:
    """Checks the limits of all `running` attempts every 50 ms instead of a timer for each.

    One attempt is checked per turn of the loop, because reads come first.
    """

    def __init__(self, running: Collection[Attempt]) -> None:
        self._loop = asyncio.get_running_loop()
        self._running = running
        self._due: deque[Attempt] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start sweeping."""
        self._timer = self._loop.call_later(_SWEEP_EVERY_S, self._sweep)

    def stop(self) -> None:
        """Stop sweeping."""
        if self._timer is not None:
            self._timer.cancel()
        self._due.clear()

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(_SWEEP_EVERY_S, self._sweep)
        if not self._due:
            now_ns = perf_counter_ns()
            self._due.extend([attempt for attempt in self._running if attempt.next_check_ns <= now_ns])
            if self._due:
                self._check_one()

    def _check_one(self) -> None:
        now_ns = perf_counter_ns()
        if self._due:
            self._due.popleft().check_limits(now_ns)
        if self._due:
            self._loop.call_soon(self._check_one)
