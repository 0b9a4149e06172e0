"""Server-sent events, incrementally, from bytes."""

from __future__ import annotations

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""Longest line or event that is kept; a peer that never ends a line must not fill the memory."""

_BOM = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """The peer sent a line or an event above MAX_EVENT_BYTES."""


class SseParser:
    """Cuts a byte stream into events, whatever the sizes of the reads.

    Lines end at LF, CR or CRLF, also when the pair straddles two reads, and nowhere else. `comments`
    counts comment lines, `ignored` lines that are no known field. `begun` says that whole events of the
    stream were taken already.
    """

    __slots__ = (
        "_data",
        "_data_size",
        "_first_line",
        "_name",
        "_skip_lf",
        "_tail",
        "_tail_size",
        "comments",
        "ignored",
    )

    def __init__(self, *, begun: bool = False) -> None:
        self.comments = 0
        self.ignored = 0
        self._tail: list[bytes] = []
        self._tail_size = 0
        self._skip_lf = False
        self._first_line = not begun
        self._name = b""
        self._data: list[bytes] = []
        self._data_size = 0

    @property
    def between_events(self) -> bool:
        """True if everything that came has been given out: the next byte begins an event."""
        return not (self._tail or self._data or self._skip_lf or self._first_line or self._name)

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """Return the events, as (name, data), that end within these bytes.

        Raises `EventTooLong`.
        """
        if self._skip_lf and data:
            if data[0] == 0x0A:
                data = data[1:]
            self._skip_lf = False
        if b"\r" in data:
            self._skip_lf = data[-1] == 0x0D
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in data:
            if data:
                self._keep(data)
            return []
        if self._tail:
            data = b"".join(self._tail) + data
        lines = data.split(b"\n")
        self._tail = []
        self._tail_size = 0
        if lines[-1]:
            self._keep(lines[-1])
        lines.pop()
        return self._take(lines)

    def whole_events(self, data: bytes) -> list[bytes] | None:
        """Return the data of events that lie whole in these bytes, one line each, as they mostly do.

        None if that is not how it is; then nothing was taken, and `feed` has to be.
        """
        begun = self._tail or self._data or self._skip_lf or self._name
        if begun or not data.startswith(b"data: ") or not data.endswith(b"\n\n"):
            return None
        payloads = data[6:-2].split(b"\n\ndata: ")
        if data.count(b"\n") != 2 * len(payloads) or b"\r" in data:
            return None
        self._first_line = False
        return payloads

    def close(self) -> list[tuple[str, bytes]]:
        """Return the last event of a body that ended without its blank line."""
        lines = [b"".join(self._tail), b""] if self._tail else [b""]
        self._tail = []
        return self._take(lines)

    def _keep(self, part: bytes) -> None:
        self._tail.append(part)
        self._tail_size += len(part)
        if self._tail_size > MAX_EVENT_BYTES:
            raise EventTooLong(f"a line of more than {MAX_EVENT_BYTES} bytes")

    def _take(self, lines: list[bytes]) -> list[tuple[str, bytes]]:
        events: list[tuple[str, bytes]] = []
        for raw in lines:
            line = raw
            if self._first_line:
                self._first_line = False
                line = line.removeprefix(_BOM)
            if line.startswith(b"data:"):
                value = line[6:] if line[5:6] == b" " else line[5:]
                self._data.append(value)
                self._data_size += len(value)
                if self._data_size > MAX_EVENT_BYTES:
                    raise EventTooLong(f"an event of more than {MAX_EVENT_BYTES} bytes")
            elif not line:
                if self._data:
                    events.append((self._name.decode("utf-8", "replace"), b"\n".join(self._data)))
                    self._data = []
                    self._data_size = 0
                self._name = b""
            elif line[0] == 0x3A:
                self.comments += 1
            else:
                self._other_field(line)
        return events

    def _other_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"event":
            self._name = value.removeprefix(b" ")
        elif name == b"data":  # a bare `data` line is an empty one
            self._data.append(b"")
        elif name not in (b"id", b"retry"):
            self.ignored += 1
