"""What a launcher's own table in the target file may hold: one checker for all launchers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _is_text_table(value: object) -> bool:
    return hasattr(value, "items") and all(
        isinstance(key, str) and isinstance(item, str)
        for key, item in cast("Mapping[object, object]", value).items()
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


def _is_port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_whole_table(value: object) -> bool:
    return hasattr(value, "items") and all(
        isinstance(key, str) and isinstance(item, int) and not isinstance(item, bool)
        for key, item in cast("Mapping[object, object]", value).items()
    )


def _is_share(value: object) -> bool:
    return _is_number(value) and cast("float", value) <= 1


def _is_tables(value: object) -> bool:
    return isinstance(value, list | tuple) and all(hasattr(item, "items") for item in value)


TEXT = "a non-empty string"
TEXTS = "a list of strings"
TEXT_TABLE = "a table of strings"
NUMBER = "a positive number"
PORT = "a port number from 1 to 65535"
WHOLE = "a whole number of at least 1"
WHOLE_TABLE = "a table of whole numbers"
COUNT = "a whole number of at least 1, or 'all'"
SHARE = "a number above 0 and at most 1"
FLAG = "true or false"
TABLES = "a list of tables"
TABLE = "a table"
"""Of a key that only the run itself sets."""

_FITS: dict[str, Callable[[object], bool]] = {
    TEXT: _is_text,
    TEXTS: _is_texts,
    TEXT_TABLE: _is_text_table,
    NUMBER: _is_number,
    PORT: _is_port,
    WHOLE: _is_whole,
    WHOLE_TABLE: _is_whole_table,
    COUNT: lambda value: value == "all" or _is_whole(value),
    SHARE: _is_share,
    FLAG: lambda value: isinstance(value, bool),
    TABLES: _is_tables,
    TABLE: lambda value: isinstance(value, Mapping),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a launcher's table: what its value is, whether it must be there, which values are valid."""

    kind: str
    required: bool = False
    one_of: tuple[str, ...] = ()


def problems_of(settings: Mapping[str, object], keys: Mapping[str, Key]) -> list[str]:
    """Return every problem of the table, each one sentence; empty if it is good."""
    found = []
    for name, value in settings.items():
        key = keys.get(name)
        if key is None:
            written = sorted(key for key in keys if keys[key].kind != TABLE)
            near = difflib.get_close_matches(name, written, n=1, cutoff=0.5)
            valid = f"did you mean {near[0]!r}?" if near else f"valid: {', '.join(written)}"
            found.append(f"unknown key {name!r}; {valid}")
        elif not _FITS[key.kind](value):
            found.append(f"{name!r} must be {key.kind}, not {value!r}")
        elif key.one_of and value not in key.one_of:
            found.append(f"{name!r} must be one of {', '.join(key.one_of)}, not {value!r}")
        elif key.required and not value:
            found.append(f"{name!r} must not be empty")
    found.extend(
        f"{name!r} is missing: it must be {key.kind}"
        for name, key in keys.items()
        if key.required and name not in settings
    )
    return found


def text(settings: Mapping[str, object], name: str, default: str | None = None) -> str | None:
    """Return a checked string of the table."""
    value = settings.get(name, default)
    return None if value is None else str(value)


def texts(settings: Mapping[str, object], name: str) -> tuple[str, ...]:
    """Return a checked list of strings, empty if it is not there."""
    return tuple(cast("list[str]", settings.get(name, ())))


def text_table(settings: Mapping[str, object], name: str) -> dict[str, str]:
    """Return a checked table of strings, empty if it is not there."""
    return dict(cast("Mapping[str, str]", settings.get(name, {})))


def number(settings: Mapping[str, object], name: str, default: float) -> float:
    """Return a checked number of the table."""
    return float(cast("float", settings.get(name, default)))


def whole(settings: Mapping[str, object], name: str, default: int = 0) -> int:
    """Return a checked whole number of the table."""
    return int(cast("int", settings.get(name, default)))


def flag(settings: Mapping[str, object], name: str, *, default: bool = False) -> bool:
    """Return a checked flag of the table."""
    return bool(settings.get(name, default))


def whole_table(settings: Mapping[str, object], name: str) -> dict[str, int]:
    """Return a checked table of whole numbers, empty if it is not there."""
    return dict(cast("Mapping[str, int]", settings.get(name, {})))


def tables(settings: Mapping[str, object], name: str) -> tuple[Mapping[str, object], ...]:
    """Return a checked list of tables, empty if it is not there."""
    return tuple(cast("list[Mapping[str, object]]", settings.get(name, ())))


_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def size_bytes(size: str) -> int:
    """Return the bytes of `512m`, `16g` and the like; raises `ValueError`."""
    match = re.fullmatch(r"([1-9][0-9]*)([bkmg]?)b?", size.lower())
    if match is None:
        raise ValueError(f"must be a size such as '512m' or '1g', not {size!r}")
    return int(match[1]) * _UNITS[match[2]]
