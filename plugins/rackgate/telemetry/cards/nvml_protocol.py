"""The line protocol between the NVML process and the measuring process.

An answer is a JSON object, or `=` and the digits of numbers: a moment, then what moves at once of each card,
in the order of the answer before. Ten times a second the words would cost more than the asking.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

BRIEF, FULL, ALL = b"brief\n", b"full\n", b"all\n"
"""The questions: for what moves at once, for what moves by seconds too, and for every field."""

Numbers = tuple[float, ...]
"""A moment in nanoseconds, then the values of that moment."""

_MARK = b"="
_BYTES = struct.calcsize("d")  # a moment has as many


def numbers_line(t_ns: int, values: Sequence[float]) -> bytes:
    """Return the answer that has a value for all that was asked, and nothing else to say."""
    return _MARK + struct.pack(f"=q{len(values)}d", t_ns, *values).hex().encode() + b"\n"


def words_line(answer: Mapping[str, Any]) -> bytes:
    """Return any other answer."""
    return json.dumps(answer, separators=(",", ":")).encode() + b"\n"


def answer_of(line: bytes) -> dict[str, Any] | Numbers:
    """Return an answer's words or its numbers; raises ValueError for a torn one."""
    if not line.startswith(_MARK):
        answer: dict[str, Any] = json.loads(line)
        return answer
    digits = bytes.fromhex(line[1:].decode())
    try:
        return struct.unpack(f"=q{len(digits) // _BYTES - 1}d", digits)
    except struct.error as error:
        raise ValueError(f"torn numbers: {error}") from error
