"""The head of an HTTP/1.1 response: parsed once, known when it comes again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

import httptools

_KNOWN_HEADS = 1024
_LONGEST_KNOWN = 4096


class HeadError(ValueError):
    """What came is no head of an HTTP response."""


class Framing(Enum):
    """How the end of a body is known."""

    CHUNKED = "chunked"
    SIZED = "sized"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Status and headers; names are in lower case, of several of one name the first one stands.

    `length` is the body's in bytes if it is `SIZED`. `keep_alive` says that the connection may be used
    again.
    """

    status: int
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    framing: Framing = Framing.CHUNKED
    length: int = 0
    keep_alive: bool = True

    kind: bytes = b""
    """The media type, in lower case and without parameters."""

    coding: bytes = b"identity"
    """How the content is encoded, in lower case."""

    @property
    def interim(self) -> bool:
        """True for a 1xx response, after which the real one comes."""
        return self.status < 200


def parse_head(data: bytes) -> Head:
    """Return the head that these bytes are, blank line included. Raises `HeadError`."""
    return _known_head(data) if len(data) <= _LONGEST_KNOWN else _parse(data)


def check_head(data: bytes) -> None:
    """Raise `HeadError` if these bytes cannot be the beginning of a head."""
    _feed(_Collector(), data)


class _Collector:
    """What httptools calls back."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.parser = httptools.HttpResponseParser(self)
        self.complete = False
        self.keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.complete = True
        self.keep_alive = self.parser.should_keep_alive()


def _feed(collector: _Collector, data: bytes) -> None:
    try:
        collector.parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        raise HeadError("the server wants to speak another protocol") from None
    except httptools.HttpParserError as error:
        raise HeadError(str(error) or type(error).__name__) from None


def _parse(data: bytes) -> Head:
    collector = _Collector()
    _feed(collector, data)
    if not collector.complete:
        raise HeadError("a head that does not end")
    status = collector.parser.get_status_code()
    headers = dict(reversed(collector.headers))
    framing, length = _framing(status, collector.headers)
    return Head(
        status=status,
        headers=headers,
        framing=framing,
        length=length,
        keep_alive=collector.keep_alive and framing is not Framing.CLOSED,
        kind=headers.get(b"content-type", b"").split(b";")[0].strip().lower(),
        coding=headers.get(b"content-encoding", b"identity").lower(),
    )


_known_head = lru_cache(maxsize=_KNOWN_HEADS)(_parse)


def _framing(status: int, headers: list[tuple[bytes, bytes]]) -> tuple[Framing, int]:
    """Return how the body ends, by RFC 9112, section 6.3."""
    if status < 200 or status in (204, 304):
        return Framing.SIZED, 0
    codings = b",".join(value for name, value in headers if name == b"transfer-encoding")
    if codings:
        last = codings.rpartition(b",")[2].strip().lower()
        return (Framing.CHUNKED if last == b"chunked" else Framing.CLOSED), 0
    lengths = {value.strip() for name, value in headers if name == b"content-length"}
    if not lengths:
        return Framing.CLOSED, 0
    length = lengths.pop()
    if lengths or not length.isdigit():
        raise HeadError(f"a content-length of {length!r}")
    return Framing.SIZED, int(length)
