"""One request of a load on its way: its moments and its limits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass

from rackgate.engines.protocols.answer import Ending
from rackgate.engines.protocols.protocol import AnswerReader, ChatProtocol
from rackgate.loadgen.http.head import Head
from rackgate.loadgen.http.memory_limit import Room
from rackgate.loadgen.http.transport import Exchange, Finish
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Limits

AFTER_DONE_NS = 1_000_000_000
REFUSALS = frozenset({429, 503})
"""Statuses by which an engine turns a request away."""
_ERROR_BODY_BYTES = 65536


def overdue(
    limits: Limits, sent_ns: int, last_token_ns: int | None, *, done: bool = False
) -> tuple[int, Ending, str]:
    """Return when a sent request is given up if nothing more comes, how it then ends, and why.

    Only tokens count: keep-alives and other frames move no limit.
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
class Terms:
    """What all requests of an endpoint have in common; `unlooked_ns` is how long no limit can be reached."""

    endpoint: Endpoint
    protocol: ChatProtocol
    limits: Limits
    unlooked_ns: int
    room: Room
    expected: re.Pattern[str] | None = None

    @classmethod
    def of(
        cls, endpoint: Endpoint, protocol: ChatProtocol, limits: Limits, room: Room, expect: str | None = None
    ) -> Terms:
        """Return an endpoint's terms: `room` is shared by all of a worker, `expect` a pattern or None."""
        nearest_s = min(limits.first_token_s, limits.total_s, limits.stall_s)
        unlooked_ns = min(AFTER_DONE_NS, round(1e9 * nearest_s))
        return cls(
            endpoint=endpoint, protocol=protocol, limits=limits, unlooked_ns=unlooked_ns, room=room,
            expected=None if expect is None else re.compile(expect),
        )  # fmt: skip


class Attempt:
    """A request that was started; the transport's sink.

    `then` is called with it when it has ended. `look_ns` is when its limits are to be looked at next.
    """

    __slots__ = (
        "_ended", "_exchange", "_suspected", "_then", "body_bytes", "connected_ns", "error_body", "finish",
        "first_byte_ns", "head", "look_ns", "reader", "request_id", "scheduled_ns", "sent_ns", "terms",
    )  # fmt: skip

    def __init__(
        self, terms: Terms, request_id: str, scheduled_ns: int, then: Callable[[Attempt], object]
    ) -> None:
        self.terms = terms
        self._then = then
        self._exchange: Exchange | None = None
        self.reader: AnswerReader | None = None
        self.body_bytes = 0
        self._ended = self._suspected = False
        self.request_id = request_id
        self.scheduled_ns = scheduled_ns
        self.sent_ns: int | None = None
        self.connected_ns: int | None = None
        self.first_byte_ns: int | None = None
        self.head: Head | None = None
        self.error_body = b""
        self.finish: Finish | None = None
        self.look_ns = scheduled_ns + terms.unlooked_ns

    @property
    def turned_away(self) -> bool:
        """True if no engine took the request: there was no connection, or a refusal."""
        unconnected = self.finish is not None and self.finish.ending is Ending.UNCONNECTED
        return unconnected or (self.head is not None and self.head.status in REFUSALS)

    def end(self, now_ns: int) -> None:
        """End it with the load: past a limit it is that limit's outcome, else it is cancelled."""
        self._ended = True
        if self._exchange is None:  # still connecting, which has a limit of its own
            return
        self._exchange.settle()
        moment, ending, detail = self._overdue()
        if now_ns >= moment:
            self._exchange.abort(ending, detail)
        else:
            self._exchange.abort(Ending.CANCELLED)

    def look(self, now_ns: int) -> None:
        """End the request if it is overdue, else say when it would be.

        It is ended at the second look: what had come when the first one was due may not have been read
        from the socket then.
        """
        if self._exchange is None or self.finish is not None:
            return
        self._exchange.settle()
        moment, ending, detail = self._overdue()
        if moment > now_ns:
            self._suspected = False
            # A token or [DONE] brings a limit that may be nearer than this one, but never nearer than that.
            self.look_ns = min(moment, now_ns + self.terms.unlooked_ns)
        elif self._suspected:
            self._exchange.abort(ending, detail)
        else:
            self._suspected = True

    def too_much(self, detail: str) -> None:
        """End it as malformed: it has brought more than there is room for."""
        if self._exchange is not None and self.finish is None:
            self._exchange.abort(Ending.MALFORMED, detail)

    # The transport's sink.

    def on_sent(self, t_ns: int, exchange: Exchange, connecting_ns: int | None = None) -> None:
        """Start the clock: with the connection, if one had to be opened for this request."""
        self.sent_ns = t_ns
        if connecting_ns is not None:
            self.sent_ns, self.connected_ns = connecting_ns, t_ns
        self._exchange = exchange
        if self._ended:
            asyncio.get_running_loop().call_soon(exchange.abort, Ending.CANCELLED)

    def on_byte(self, t_ns: int) -> None:
        """Note the first byte."""
        self.first_byte_ns = t_ns

    def on_head(self, t_ns: int, head: Head) -> None:  # noqa: ARG002
        """Choose the reader by what the server says it sends."""
        self.head = head
        if head.status == 200:
            self.reader = self.terms.protocol.reader(streamed=head.kind != b"application/json")
            if head.coding != b"identity" and self._exchange is not None:
                coding = head.coding.decode("latin-1")
                self._exchange.abort(Ending.MALFORMED, f"content-encoding {coding} was not asked for")

    def on_body(self, reads: list[tuple[int, bytes]]) -> None:
        """Read pieces of the body, within bounds."""
        size, room = 0, self.terms.room
        for _, data in reads:
            size += len(data)
        self.body_bytes += size
        room.taken += size
        if self.body_bytes > room.each_bytes:
            self.too_much(room.too_long)
        elif self.reader is not None:
            self.reader.take(reads)
        elif len(self.error_body) < _ERROR_BODY_BYTES:
            self.error_body += b"".join([data for _, data in reads])
        if room.taken > room.all_bytes:
            room.relieve()

    def on_end(self, finish: Finish) -> None:
        """Note how it ended and tell whoever waits."""
        self.finish = finish
        self.terms.room.taken -= self.body_bytes
        self._then(self)

    def _overdue(self) -> tuple[int, Ending, str]:
        sent, limits = self.connected_ns or self.sent_ns or self.scheduled_ns, self.terms.limits
        if self.reader is None:
            return overdue(limits, sent, None)
        return overdue(limits, sent, self.reader.last_token_ns, done=self.reader.done_seen)
