"""Problems of TOML files, collected so that all of them are reported at once."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError


class ConfigError(Exception):
    """Bad files. `problems` has one line for each: file, key, what is wrong, nearest valid key."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def read_toml(path: Path) -> dict[str, Any]:
    """Return the parsed file; raises `ConfigError` if it cannot be read or is not TOML."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: not valid TOML: {error}"]) from error


def nearest(word: str, valid: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest valid word, else the list of valid ones."""
    words = sorted(valid)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else f"; valid: {', '.join(words)}"


def problems_of(error: ValidationError, model: type[BaseModel], file: str, prefix: str = "") -> list[str]:
    """Return one line for each problem that pydantic found."""
    return [_line(item, model, file, prefix) for item in error.errors()]


def _line(item: Mapping[str, Any], model: type[BaseModel], file: str, prefix: str) -> str:
    where = prefix
    for part in item["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    kind, message = item["type"], str(item["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        fields = _fields_at(model, item["loc"][:-1])
        return f"{file}: {where}: unknown key{nearest(str(item['loc'][-1]), fields)}"
    if kind == "missing":
        return f"{file}: {where}: missing"
    given = item.get("input")
    shown = f" (given: {given!r:.60})" if isinstance(given, str | int | float | bool) else ""
    return f"{file}: {where or '(file)'}: {message}{shown}"


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    current: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, int) or current is None or part not in current.model_fields:
            continue
        current = _model_in(current.model_fields[part].annotation)
    return list(current.model_fields) if current else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
