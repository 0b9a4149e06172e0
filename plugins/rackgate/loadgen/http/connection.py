"""One HTTP/1.1 connection of the load path: reads are stamped and put aside, and understood when need be."""

from __future__ import annotations

import asyncio
import select
import ssl
from time import perf_counter_ns
from typing import Any, Protocol

from rackgate.engines.protocols.answer import Ending
from rackgate.loadgen.http.body import Body, BodyError, Chunked, body_of
from rackgate.loadgen.http.head import Framing, Head, HeadError, check_head, parse_head
from rackgate.loadgen.http.transport import Finish, Sink

MAX_HEAD_BYTES = 1 << 20
MOST_READS_ASIDE = 32
"""So many reads may wait until they are understood: to understand them holds up the stamps of others."""

LEFT_ALONE_NS = 1_000_000
"""A kept connection that was free for so long is asked whether the peer is still there."""

_GONE = getattr(select, "POLLRDHUP", select.POLLIN)
_BLANK_LINE = b"\r\n\r\n"
_CHECKED_AT_ONCE = 4096


class Owner(Protocol):
    """What a connection tells its client."""

    def look_at(self, connection: Connection) -> None:
        """Call `advance` after the sockets that are ready now have been read."""

    def opened(self, connection: Connection) -> None:
        """The connection came up."""

    def closed(self, connection: Connection) -> None:
        """The connection is gone."""

    def released(self, connection: Connection) -> None:
        """The connection is free for the next request."""


class Connection(asyncio.Protocol):
    """Carries one request at a time.

    In a chunked body only a read that may be the last one is looked at when it comes; the others wait for
    it, for `settle`, or until they are some. So does a read that begins with the very head of the answer
    before.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: Any = None
        self._sink: Sink | None = None
        self._head: Head | None = None
        self._body: Body | None = None
        self._reads: list[tuple[int, bytes]] = []
        self._begun = b""
        self._checked_bytes = 0
        self._stream = False
        self._usual = b""
        self._usual_head: Head | None = None
        self._awaiting = False
        self._lost = False
        self._end: tuple[int, Exception | None] | None = None
        self._fresh = True
        self._answered = False
        self._free_ns = 0
        self.queued = False

    @property
    def usable(self) -> bool:
        """True if a request can be sent."""
        out = self._lost or self._reads or self._transport is None
        return not out and not self._transport.is_closing()

    @property
    def kept(self) -> bool:
        """True if a request can be sent and the peer has not gone, even if only the kernel knows so far.

        A request is sent once, so that it must not go where nobody will read it.
        """
        if not self.usable:
            return False
        if perf_counter_ns() - self._free_ns < LEFT_ALONE_NS:
            return True
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), _GONE)
        return not poll.poll(0)

    def perform(self, request: bytes, sink: Sink, connecting_ns: int | None = None) -> None:
        """Send one request; `sink` is told what comes and how it ends.

        `connecting_ns` is when the connection was begun, if this request had to wait for it.
        """
        self._head = self._body = None
        self._stream = self._answered = False
        self._awaiting = self._usual_head is not None
        self._sink = sink
        self._fresh = connecting_ns is not None
        sink.on_sent(perf_counter_ns(), self, connecting_ns)
        self._transport.write(request)

    def abort(self, ending: Ending, detail: str = "") -> None:
        """End the exchange now and drop the connection."""
        sink, self._sink = self._sink, None
        self.drop()
        if sink is not None:
            sink.on_end(Finish(ending=ending, t_ns=perf_counter_ns(), detail=detail))

    def settle(self) -> None:
        """Pass on what has arrived so far."""
        self.advance()

    def drop(self) -> None:
        """Close at once."""
        self._lost = True
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol: stamp and put aside, nothing else.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what writes."""
        self._transport = transport
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """Stamp a read."""
        reads = self._reads
        reads.append((perf_counter_ns(), data))
        if self._awaiting:
            self._awaiting = False
            self._stream = data.startswith(self._usual)
        # A body whose end is in its bytes ends with a blank line, which a read of less than 5 bytes may cut.
        if (
            self._stream
            and not data.endswith(_BLANK_LINE)
            and len(data) > 4
            and len(reads) < MOST_READS_ASIDE
        ):
            return
        if not self.queued:
            self._owner.look_at(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stamp the end."""
        self._lost = True
        self._end = perf_counter_ns(), exc
        if not self.queued:
            self._owner.look_at(self)

    # Understanding what was put aside, in the order of arrival.

    def advance(self) -> None:
        """Take what was put aside."""
        reads, self._reads = self._reads, []
        if reads:
            sink = self._sink
            if sink is None:
                self.drop()  # bytes that nobody asked for: the connection is out of step
            else:
                if not self._answered:
                    self._answered = True
                    sink.on_byte(reads[0][0])
                try:
                    self._take(sink, reads)
                except (HeadError, BodyError) as error:
                    self.abort(Ending.MALFORMED, f"HTTP: {error}")
        if self._end is not None:
            self._over(*self._end)

    def _take(self, sink: Sink, reads: list[tuple[int, bytes]]) -> None:
        if self._body is None:
            reads = self._take_usual_head(sink, reads) if self._stream else self._take_head(sink, reads)
        if self._body is None or self._sink is None:
            return
        taken = self._body.take(reads) if reads else reads
        if taken:
            sink.on_body(taken)
        if self._body.ended and self._sink is not None:
            self._complete(reads[-1][0] if reads else perf_counter_ns())

    def _take_usual_head(self, sink: Sink, reads: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return the reads behind the head that the answer before had too, the first of them cut."""
        t_ns, data = reads[0]
        self._head, self._body = self._usual_head, Chunked()
        if self._head is not None:
            sink.on_head(t_ns, self._head)
        reads[0] = t_ns, data[len(self._usual) :]
        return reads

    def _take_head(self, sink: Sink, reads: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return the reads behind the head, the first of them cut; none while the head is not whole."""
        data = self._begun
        for place, (t_ns, piece) in enumerate(reads):
            data = data + piece if data else piece
            while (end := data.find(_BLANK_LINE)) >= 0:
                said, data = data[: end + 4], data[end + 4 :]
                head = parse_head(said)
                if head.interim:
                    continue
                self._begun, self._checked_bytes = b"", 0
                self._head, self._body = head, body_of(head)
                self._stream = head.framing is Framing.CHUNKED
                if self._stream:
                    self._usual, self._usual_head = said, head
                sink.on_head(t_ns, head)
                return [(t_ns, data), *reads[place + 1 :]]
        self._begun = data
        self._check_begun()
        return []

    def _check_begun(self) -> None:
        """Find out about what is no head before it ends, if it ever does."""
        size = len(self._begun)
        if size > MAX_HEAD_BYTES:
            raise HeadError(f"a head of more than {MAX_HEAD_BYTES >> 10} KiB")
        if size <= _CHECKED_AT_ONCE or size >= 2 * self._checked_bytes:
            self._checked_bytes = size
            check_head(self._begun)

    def _complete(self, t_ns: int) -> None:
        sink, self._sink = self._sink, None
        head, body = self._head, self._body
        self._free_ns = t_ns
        self._stream = False
        if head is not None and head.keep_alive and body is not None and not body.excess:
            self._owner.released(self)
        else:
            self.drop()
        if sink is not None:
            sink.on_end(Finish(ending=Ending.COMPLETE, t_ns=t_ns))

    def _over(self, t_ns: int, error: Exception | None) -> None:
        """The connection is gone; a body without a length ends with it."""
        self._end = None
        self._owner.closed(self)
        sink, self._sink = self._sink, None
        if sink is None:
            return
        if self._head is not None and self._head.framing is Framing.CLOSED and error is None:
            ending, detail = Ending.COMPLETE, ""
        else:
            ending, detail = Ending.LOST, reason_of(error) if error else "connection closed by the peer"
            if not self._fresh and not self._answered:
                detail = f"{detail}, a kept one, before it answered; no request is sent twice"
        sink.on_end(Finish(ending=ending, t_ns=t_ns, detail=detail))


def reason_of(error: BaseException) -> str:
    """Return why there is no connection, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted: certificate verify failed: {error.verify_message}"
    text = str(error) or type(error).__name__
    return "connect limit reached" if isinstance(error, TimeoutError) and not str(error) else text
