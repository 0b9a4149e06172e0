"""Whether a generated text is the output of a sound engine or of a broken one."""

from __future__ import annotations

import re

_LONGEST_UNIT = 32
_LEAST_REPEATS = 8
_LEAST_LENGTH = 16
_LEAST_TAIL_REPEATS = 32
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f\x80-\x84\x86-\x9f]")
_CONTROL_SHARE = 0.05


def degenerate(text: str) -> str:
    """Return why `text` is no sane output, or an empty string.

    After a numeric fault an engine answers at full speed with one symbol or one word repeated, or with
    control bytes. A repeat shorter than 16 characters or 8 times is left alone: it may be the answer.
    """
    if not text.isprintable() and _control_bytes(text):
        return "control bytes"
    stripped = text.strip()
    if len(stripped) < _LEAST_LENGTH:
        return ""
    unit = _repeated_unit(stripped, _LEAST_REPEATS)
    if unit is None:  # a sound beginning does not excuse a tail that is longer than it
        unit = _repeated_unit(stripped[len(stripped) // 2 :].lstrip(), _LEAST_TAIL_REPEATS)
    if unit is None:
        return ""
    word = unit.strip()
    if len(set(word)) == 1:
        return "one symbol repeated"
    return "" if any(character.isspace() for character in word) else "one word repeated"


def _control_bytes(text: str) -> bool:
    found = _CONTROL.findall(text)
    return len(found) >= 2 or (len(found) == 1 and len(text) * _CONTROL_SHARE <= 1)


def _repeated_unit(text: str, least_repeats: int) -> str | None:
    if len(text) < _LEAST_LENGTH:
        return None
    for period in range(1, min(_LONGEST_UNIT, len(text) // least_repeats) + 1):
        if text[period] == text[0] and text[period:] == text[:-period]:
            return text[:period]
    return None
