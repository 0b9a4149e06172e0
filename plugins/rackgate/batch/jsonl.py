"""Tolerant reader of JSON lines: byte order mark, CRLF, blank, torn and unreadable lines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLine:
    """A line with a JSON object; `number` counts all lines of the file from 1."""

    number: int
    value: dict[str, Any]
    whole: bool
    """False for a last line without its newline, which the writer may have left incomplete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLines:
    """The lines of a file with an object, and the numbers of the lines without."""

    lines: tuple[JsonLine, ...]
    unreadable: tuple[int, ...]
    warnings: tuple[str, ...]


def read_json_lines(data: bytes) -> JsonLines:
    """Return every line of `data` except blank lines.

    Only a newline ends a line, since U+2028 and similar characters may stand inside JSON strings. A line that
    is not UTF-8, not JSON or not an object is unreadable. Warnings are `BOM` and `CRLF`.
    """
    warnings = []
    if data.startswith(_BYTE_ORDER_MARK):
        data = data[len(_BYTE_ORDER_MARK) :]
        warnings.append("BOM")
    if b"\r\n" in data:
        warnings.append("CRLF")
    lines, unreadable = [], []
    parts = data.split(b"\n")
    for number, part in enumerate(parts, 1):
        if not part.strip():
            continue
        value = _object(part)
        if value is None:
            unreadable.append(number)
        else:
            lines.append(JsonLine(number=number, value=value, whole=number < len(parts)))
    return JsonLines(lines=tuple(lines), unreadable=tuple(unreadable), warnings=tuple(warnings))


def canonical(value: Any) -> str:
    """Return a JSON value as text, independent of the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
