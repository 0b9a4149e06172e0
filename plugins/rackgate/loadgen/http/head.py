"""The head of an HTTP/1.1 response; parsed heads are cached by their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

import httptools

_CACHED_HEADS = 1024
_MAX_CACHED_BYTES = 4096


class HeadError(ValueError):
    """The bytes are not the head of an HTTP response."""


class Framing(Enum):
    """How a body's end is marked."""

    CHUNKED = "chunked"
    SIZED = "sized"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Status and headers; names are in lower case, and the first of several headers of one name counts.

    `length` is the body's in bytes if it is `SIZED`. With `keep_alive` the connection may be reused.
    """

    status: int
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    framing: Framing = Framing.CHUNKED
    length: int = 0
    keep_alive: bool = True

    media_type: bytes = b""
    """In lower case and without parameters."""

    content_encoding: bytes = b"identity"
    """In lower case."""

    @property
    def interim(self) -> bool:
        """True for a 1xx response, which precedes the final one."""
        return self.status < 200


def parse_head(data: bytes) -> Head:
    """Return the head of these bytes, which include the blank line. Raises `HeadError`."""
    return _parse_cached(data) if len(data) <= _MAX_CACHED_BYTES else _parse(data)


def check_head(data: bytes) -> None:
    """Raise `HeadError` if these bytes cannot be the beginning of a head."""
    _feed(_Collector(), data)


class _Collector:
    """The callbacks of httptools."""

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
        media_type=headers.get(b"content-type", b"").split(b";")[0].strip().lower(),
        content_encoding=headers.get(b"content-encoding", b"identity").lower(),
    )


_parse_cached = lru_cache(maxsize=_CACHED_HEADS)(_parse)


def _framing(status: int, headers: list[tuple[bytes, bytes]]) -> tuple[Framing, int]:
    """Return the framing of the body and its length (RFC 9112, section 6.3)."""
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
