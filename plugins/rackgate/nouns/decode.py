"""Decoding of nouns from plain data, as records and pipes carry it."""

from __future__ import annotations

import collections.abc
import sys
import types
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

_Noun = TypeVar("_Noun")


def decode(kind: type[_Noun], plain: Any) -> _Noun:
    """Return the frozen dataclass of which `dataclasses.asdict` made this plain data, nested ones included.

    Unknown keys are ignored; missing keys take the field's default. Raises `TypeError` or `ValueError` for
    data of another shape.
    """
    return cast("_Noun", _made(kind, plain))


def _made(kind: Any, plain: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if plain is None else _made(next(one for one in inner if one is not type(None)), plain)
    if origin is tuple:
        return tuple(_made(inner[0], item) for item in plain)
    if origin is collections.abc.Mapping:
        return {key: _made(inner[1], item) for key, item in plain.items()}
    if is_dataclass(kind):
        if not isinstance(plain, dict):
            raise TypeError(f"{kind} needs an object, not {plain!r:.60}")
        hints = _hints(cast("type", kind))
        known = {field.name for field in fields(kind) if field.init} & set(plain)
        return cast("Any", kind)(**{name: _made(hints[name], plain[name]) for name in known})
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(plain)
    return float(plain) if kind is float else plain


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields; nouns import abstract collections for type checkers only."""
    names = {name: getattr(collections.abc, name) for name in collections.abc.__all__}
    return get_type_hints(kind, {**names, **vars(sys.modules[kind.__module__])})
