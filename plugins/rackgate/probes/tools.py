"""Catalogue of tools: the data is in `tools.toml`, the parsers are in `parsers/`."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from rackgate.nouns.slo import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program with a known output; `units` and `definitions` of its values by name."""

    name: str
    title: str
    says: str
    install: str
    parser: str
    program: str = ""
    vendor: str = ""
    scope: Scope | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    definitions: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, str] = field(default_factory=dict)
    peer_shares: Mapping[str, str] = field(default_factory=dict)
    least_cards: Mapping[str, int] = field(default_factory=dict)
    status_tells: bool = False
    idle_cards: bool = False
    file_output: bool = False
    layer: str = ""


@functools.cache
def tools() -> Mapping[str, Tool]:
    """Return the tools by name, in the order of the file."""
    text = files(__package__).joinpath("tools.toml").read_text(encoding="utf-8")
    return {name: _tool(name, table) for name, table in tomllib.loads(text).items()}


def _tool(name: str, table: dict[str, Any]) -> Tool:
    values = table.pop("values", {})
    scope = table.pop("scope", None)
    return Tool(
        name=name,
        parser=table.pop("parser", name),
        scope=Scope(scope) if scope else None,
        units={value: unit for value, (unit, _) in values.items()},
        definitions={value: definition for value, (_, definition) in values.items()},
        **table,
    )


@functools.cache
def compute_script() -> str:
    """Return the program of the tool `compute`, for `python3 -c`."""
    return files(__package__).joinpath("compute.py").read_text(encoding="utf-8")
