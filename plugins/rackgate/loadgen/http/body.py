"""Decodes the body framing of HTTP/1.1 and keeps the arrival of each piece."""

from __future__ import annotations

import re
from typing import Protocol

from rackgate.loadgen.http.head import Framing, Head

_SIZES = {b"%x" % size: size for size in range(1, 4096)}
_SIZE_LINES = {size + len(line) + 4: line + b"\r\n" for line, size in _SIZES.items()}
"""The size line of a chunk by the length of the whole chunk with both line ends."""

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_EXTENSIONS = rb'(?:;%b(?:=(?:%b|"[ !#-\[\]-~]*"))?)*' % (_TOKEN, _TOKEN)
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})%b" % _EXTENSIONS)
_BEGUN_SIZE_LINE = re.compile(rb"[0-9A-Fa-f]{1,15}(?:;[!-~ ]*)?\r?")
_LAST_CHUNK = b"0\r\n\r\n"
_MAX_LINE_BYTES = 16384
_MAX_TRAILER_BYTES = 65536


class BodyError(ValueError):
    """The body violates HTTP framing."""


class Body(Protocol):
    """Decodes the reads of one body."""

    ended: bool
    """True once the body is complete."""

    excess: bool
    """True if bytes followed its end."""

    def take(self, reads: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return the pieces of the body in these reads, each with its arrival. Raises `BodyError`."""


def body_decoder(head: Head) -> Body:
    """Return the decoder of a response's body."""
    if head.framing is Framing.CHUNKED:
        return ChunkedBody()
    return FixedLengthBody(head.length) if head.framing is Framing.SIZED else CloseDelimitedBody()


class CloseDelimitedBody:
    """A body that ends when the connection closes."""

    __slots__ = ("ended", "excess")

    def __init__(self) -> None:
        self.ended = self.excess = False

    def take(self, reads: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return all reads."""
        return reads


class FixedLengthBody:
    """A body with a Content-Length."""

    __slots__ = ("_left", "ended", "excess")

    def __init__(self, length: int) -> None:
        self._left = length
        self.ended = not length
        self.excess = False

    def take(self, reads: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return the pieces within the length."""
        taken = []
        for t_ns, data in reads:
            if len(data) > self._left:
                self.excess = True
            piece = data[: self._left]
            if piece:
                taken.append((t_ns, piece))
                self._left -= len(piece)
        self.ended = not self._left
        return taken


class ChunkedBody:
    """A chunked body (RFC 9112, section 7.1). Line ends are CRLF; extensions and trailers are ignored."""

    __slots__ = ("_carry", "_crlf_due", "_in_trailers", "_left", "_trailer_bytes", "ended", "excess")

    def __init__(self) -> None:
        self.ended = self.excess = False
        self._carry = b""
        self._left = 0
        self._crlf_due = False
        self._in_trailers = False
        self._trailer_bytes = 0

    def take(self, reads: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return the pieces of the body in these reads, each with its arrival. Raises `BodyError`."""
        taken: list[tuple[int, bytes]] = []
        between = self._between_chunks
        for t_ns, data in reads:
            place = 0
            if between:
                line = _SIZE_LINES.get(len(data))
                if line is not None and data.startswith(line) and data.endswith(b"\r\n"):
                    taken.append((t_ns, data[len(line) : -2]))  # usually a read is one whole chunk
                    continue
                place = self._take_whole(t_ns, data, taken)
            if place < len(data):
                if between and data[place:] == _LAST_CHUNK:
                    self.ended, between = True, False
                else:
                    self._scan(t_ns, data[place:], taken)
                    between = self._between_chunks
        return taken

    @staticmethod
    def _take_whole(t_ns: int, data: bytes, taken: list[tuple[int, bytes]]) -> int:
        """Take the complete chunks at the start of a read and return their end."""
        pieces = []
        place, size = 0, len(data)
        while place < size:
            begin = data.find(b"\r\n", place, place + 5) + 2
            if begin < 2:
                break  # a read that ends inside a size
            end = begin + _SIZES.get(data[place : begin - 2], -1)
            if end < begin or data[end : end + 2] != b"\r\n":
                break
            pieces.append(data[begin:end])
            place = end + 2
        if pieces:
            taken.append((t_ns, pieces[0] if len(pieces) == 1 else b"".join(pieces)))
        return place

    @property
    def _between_chunks(self) -> bool:
        more = self._carry or self._left or self._crlf_due or self._in_trailers or self.ended
        return not more

    def _scan(self, t_ns: int, data: bytes, taken: list[tuple[int, bytes]]) -> None:
        data, self._carry = self._carry + data, b""
        place = 0
        while place < len(data):
            if self.ended:
                self.excess = True
                return
            if self._left:
                piece = data[place : place + self._left]
                taken.append((t_ns, piece))
                place += len(piece)
                self._left -= len(piece)
                self._crlf_due = not self._left
                continue
            end = data.find(b"\r\n", place)
            if end < 0:
                self._keep(data[place:])
                return
            self._line(data[place:end])
            place = end + 2

    def _line(self, line: bytes) -> None:
        """Take one complete line: the empty line after a chunk, a size line, or a trailer."""
        if self._crlf_due:
            if line:
                raise BodyError("a chunk is longer than it says")
            self._crlf_due = False
        elif self._in_trailers:
            self._trailer_bytes += len(line) + 2
            if self._trailer_bytes > _MAX_TRAILER_BYTES:
                raise BodyError("trailers without an end")
            self.ended = not line
        else:
            found = _SIZE_LINE.fullmatch(line)
            if found is None:
                raise BodyError(f"{line[:20]!r} is no size of a chunk")
            self._left = int(found.group(1), 16)
            self._in_trailers = not self._left

    def _keep(self, rest: bytes) -> None:
        """Keep an incomplete line, if it can be valid."""
        if self._crlf_due:
            fits = rest == b"\r"
        elif self._in_trailers:
            fits = len(rest) <= _MAX_LINE_BYTES
        else:
            fits = len(rest) <= _MAX_LINE_BYTES and _BEGUN_SIZE_LINE.fullmatch(rest) is not None
        if not fits:
            raise BodyError(f"{rest[:20]!r} where a chunk should begin or end")
        self._carry = rest
