"""Strict JSON objects from a program's output: no NaN, no duplicate key, no text after them."""

from __future__ import annotations

import json
import math
from typing import Any

from rackgate.probes.probe import BadOutput

_SHOWN = 160


def shown(text: str) -> str:
    """Return the beginning of an output in quotes, on one line."""
    words = " ".join(text.split())
    return f"'{words[:_SHOWN]}{'...' if len(words) > _SHOWN else ''}'" if words else "nothing"


def one_object(text: str) -> dict[str, Any]:
    """Return the one JSON object of an output, after any lines that are no JSON.

    Raises `BadOutput` for no object, a broken one, NaN, infinity, a duplicate key, or text after it.
    """
    found, end = _object_at(text, _start(text))
    if text[end:].strip():
        raise BadOutput(f"words after its JSON: {shown(text[end:])}")
    return found


def objects(text: str) -> tuple[dict[str, Any], ...]:
    """Return one or more JSON objects in a row, as strictly as `one_object`.

    Lines that are no JSON may stand before the first object only.
    """
    found, end = _object_at(text, _start(text))
    listed = [found]
    while text[end:].strip():
        if not text[end:].lstrip().startswith("{"):
            raise BadOutput(f"words after its JSON: {shown(text[end:])}")
        found, end = _object_at(text, end + text[end:].index("{"))
        listed.append(found)
    return tuple(listed)


def _object_at(text: str, start: int) -> tuple[dict[str, Any], int]:
    decoder = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    try:
        found, end = decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise BadOutput(f"its JSON breaks off or is wrong ({error.msg}): {shown(text[start:])}") from error
    if not isinstance(found, dict):
        raise BadOutput(f"its JSON is no object: {shown(text)}")
    return found, end


def _start(text: str) -> int:
    at = 0
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("{"):
            return at + len(line) - len(line.lstrip())
        at += len(line)
    raise BadOutput(f"no JSON, but {shown(text)}")


def _no_constant(name: str) -> Any:
    raise BadOutput(f"{name} is not a value")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise BadOutput(f"the key '{next(name for name in names if names.count(name) > 1)}' stands twice")
    return found


def field(found: Any, *path: str | int) -> Any:
    """Return the value at a path; raises `BadOutput` with the path if it is missing."""
    for index, part in enumerate(path):
        try:
            found = found[part]
        except (KeyError, IndexError, TypeError):
            where = ".".join(str(one) for one in path[: index + 1])
            raise BadOutput(f"of no known shape: {where} is missing") from None
    return found


def number(value: Any, what: str) -> float:
    """Return a finite number, also from a string; raises `BadOutput`."""
    try:
        found = math.nan if isinstance(value, bool | None) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise BadOutput(f"{what} is {value!r:.40}, no number")
    return found
