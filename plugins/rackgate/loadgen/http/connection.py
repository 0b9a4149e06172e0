"""An HTTP/1.1 connection of the load path: stamps and buffers reads, and parses them later."""

from __future__ import annotations

import asyncio
import select
import ssl
from time import perf_counter_ns
from typing import Any, Protocol

from rackgate.engines.protocols.answer import Ending
from rackgate.loadgen.http.body import Body, BodyError, ChunkedBody, body_decoder
from rackgate.loadgen.http.head import Framing, Head, HeadError, check_head, parse_head
from rackgate.loadgen.http.transport import Finish, Sink

MAX_HEAD_BYTES = 1 << 20
MAX_BUFFERED_READS = 32
"""Parsing more at once would delay the stamps of other connections."""

IDLE_CHECK_AFTER_NS = 1_000_000
"""A connection that was idle for longer is checked for a close by the peer before it is reused."""

_PEER_CLOSED = getattr(select, "POLLRDHUP", select.POLLIN)
_BLANK_LINE = b"\r\n\r\n"
_ALWAYS_CHECKED_BYTES = 4096


class Owner(Protocol):
    """The client that owns connections."""

    def schedule(self, connection: Connection) -> None:
        """Call `process_reads` after the sockets that are ready now have been read."""

    def opened(self, connection: Connection) -> None:
        """Called when the connection is open."""

    def closed(self, connection: Connection) -> None:
        """Called when the connection is closed."""

    def released(self, connection: Connection) -> None:
        """Called when the connection is free for the next request."""


class Connection(asyncio.Protocol):
    """Carries one request at a time.

    Reads within a chunked body are buffered until one may be the last, `process_reads` is called, or
    `MAX_BUFFERED_READS` are there. A read that begins with the same head as the response before is buffered
    too.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: Any = None
        self._sink: Sink | None = None
        self._head: Head | None = None
        self._body: Body | None = None
        self._reads: list[tuple[int, bytes]] = []
        self._partial_head = b""
        self._checked_bytes = 0
        self._buffering = False
        self._known_head_bytes = b""
        self._known_head: Head | None = None
        self._head_due = False
        self._lost = False
        self._end: tuple[int, Exception | None] | None = None
        self._new = True
        self._answered = False
        self._idle_since_ns = 0
        self.queued = False

    @property
    def usable(self) -> bool:
        """True if a request can be sent, as far as the event loop knows."""
        out = self._lost or self._reads or self._transport is None
        return not out and not self._transport.is_closing()

    @property
    def kept(self) -> bool:
        """True if a request can be sent, as far as the kernel knows.

        No request is sent twice, so it must not go to a connection that the peer has closed.
        """
        if not self.usable:
            return False
        if perf_counter_ns() - self._idle_since_ns < IDLE_CHECK_AFTER_NS:
            return True
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), _PEER_CLOSED)
        return not poll.poll(0)

    def perform(self, request: bytes, sink: Sink, connecting_ns: int | None = None) -> None:
        """Send one request and pass its response to `sink`.

        `connecting_ns` is the start of connecting, if the connection was opened for this request.
        """
        self._head = self._body = None
        self._buffering = self._answered = False
        self._head_due = self._known_head is not None
        self._sink = sink
        self._new = connecting_ns is not None
        sink.on_sent(perf_counter_ns(), self, connecting_ns)
        self._transport.write(request)

    def abort(self, ending: Ending, detail: str = "") -> None:
        """End the exchange now and close the connection."""
        sink, self._sink = self._sink, None
        self.drop()
        if sink is not None:
            sink.on_end(Finish(ending=ending, t_ns=perf_counter_ns(), detail=detail))

    def drop(self) -> None:
        """Close at once."""
        self._lost = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """Stamp and buffer a read."""
        reads = self._reads
        reads.append((perf_counter_ns(), data))
        if self._head_due:
            self._head_due = False
            self._buffering = data.startswith(self._known_head_bytes)
        # A chunked body ends with a blank line, which a read of less than 5 bytes may split.
        if (
            self._buffering
            and not data.endswith(_BLANK_LINE)
            and len(data) > 4
            and len(reads) < MAX_BUFFERED_READS
        ):
            return
        if not self.queued:
            self._owner.schedule(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stamp the end."""
        self._lost = True
        self._end = perf_counter_ns(), exc
        if not self.queued:
            self._owner.schedule(self)

    # Understanding what was put aside, in the order of arrival.

    def process_reads(self) -> None:
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
            reads = self._take_known_head(sink, reads) if self._buffering else self._take_head(sink, reads)
        if self._body is None or self._sink is None:
            return
        taken = self._body.take(reads) if reads else reads
        if taken:
            sink.on_body(taken)
        if self._body.ended and self._sink is not None:
            self._complete(reads[-1][0] if reads else perf_counter_ns())

    def _take_known_head(self, sink: Sink, reads: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return the reads behind the head that the answer before had too, the first of them cut."""
        t_ns, data = reads[0]
        self._head, self._body = self._known_head, ChunkedBody()
        if self._head is not None:
            sink.on_head(t_ns, self._head)
        reads[0] = t_ns, data[len(self._known_head_bytes) :]
        return reads

    def _take_head(self, sink: Sink, reads: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return the reads behind the head, the first of them cut; none while the head is not whole."""
        data = self._partial_head
        for place, (t_ns, piece) in enumerate(reads):
            data = data + piece if data else piece
            while (end := data.find(_BLANK_LINE)) >= 0:
                said, data = data[: end + 4], data[end + 4 :]
                head = parse_head(said)
                if head.interim:
                    continue
                self._partial_head, self._checked_bytes = b"", 0
                self._head, self._body = head, body_decoder(head)
                self._buffering = head.framing is Framing.CHUNKED
                if self._buffering:
                    self._known_head_bytes, self._known_head = said, head
                sink.on_head(t_ns, head)
                return [(t_ns, data), *reads[place + 1 :]]
        self._partial_head = data
        self._check_partial_head()
        return []

    def _check_partial_head(self) -> None:
        """Find out about what is no head before it ends, if it ever does."""
        size = len(self._partial_head)
        if size > MAX_HEAD_BYTES:
            raise HeadError(f"a head of more than {MAX_HEAD_BYTES >> 10} KiB")
        if size <= _ALWAYS_CHECKED_BYTES or size >= 2 * self._checked_bytes:
            self._checked_bytes = size
            check_head(self._partial_head)

    def _complete(self, t_ns: int) -> None:
        sink, self._sink = self._sink, None
        head, body = self._head, self._body
        self._idle_since_ns = t_ns
        self._buffering = False
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
            if not self._new and not self._answered:
                detail = f"{detail}, a kept one, before it answered; no request is sent twice"
        sink.on_end(Finish(ending=ending, t_ns=t_ns, detail=detail))


def reason_of(error: BaseException) -> str:
    """Return why there is no connection, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted: certificate verify failed: {error.verify_message}"
    text = str(error) or type(error).__name__
    return "connect limit reached" if isinstance(error, TimeoutError) and not str(error) else text
