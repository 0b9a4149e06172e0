"""The kinds of engines: those of catalogue.toml, and those that a target file defines itself."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

OWN_KIND = "engine_kind"
"""The settings of an engine whose kind the target file defines carry the kind's table under this key."""

_LISTS = ("protocols", "command", "arguments", "secrets", "cold_start_s")
_TABLES = ("options", "environment", "ulimits")


class BadCatalogue(Exception):
    """The catalogue has faults; the message names all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFailure:
    """A failure of one kind of engine; it is looked for before those of known_failures/signatures.toml.

    `layer` is that of `LaunchFailed`. `cause`: see there. Named groups of the pattern fill the hint.
    """

    name: str
    layer: str
    pattern: str
    hint: str
    cause: str = "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressMark:
    """A line of a log that tells how far a start is; groups `share...` are how much of it is done."""

    pattern: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One kind of engine.

    `command` starts it as a process, `arguments` follow the entry point of `image`. `options` holds the
    words of each option that has a value; `environment` likewise for engines that are told by variables.
    `loaded` says how a loaded model is told from a listening port; `tells_first_tokens` that its metrics page
    has a histogram of times to first token (rackgate.telemetry.engine_names) without being asked for it.
    """

    name: str
    title: str
    protocols: tuple[str, ...]
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    port: int
    health_path: str
    models_path: str
    metrics_path: str
    cold_start_s: tuple[float, ...]
    ready_timeout_s: float
    loaded: str
    tells_first_tokens: bool = False
    image: str = ""
    note: str = ""
    shm_size: str = ""
    ipc: str = ""
    cache_folder: str = ""
    secrets: tuple[str, ...] = ()
    ulimits: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    failures: tuple[KnownFailure, ...] = ()
    progress: tuple[ProgressMark, ...] = ()


@cache
def catalogue() -> Mapping[str, CatalogueEntry]:
    """Return the shipped catalogue by name."""
    return parse_catalogue(files("rackgate.engines").joinpath("catalogue.toml").read_text("utf-8"))


def kind_of(settings: Mapping[str, object]) -> CatalogueEntry | None:
    """Return the kind that an engine's settings name: the target file's own, or one that ships."""
    name, own = str(settings.get("engine", "")), settings.get(OWN_KIND)
    return _entry(name, own) if isinstance(own, Mapping) else catalogue().get(name)


def parse_catalogue(text: str) -> Mapping[str, CatalogueEntry]:
    """Return the entries of a catalogue; raises `BadCatalogue` with all its faults."""
    found: dict[str, CatalogueEntry] = {}
    faults: list[str] = []
    for name, table in tomllib.loads(text).get("engine", {}).items():
        faults += [f"{name}: {fault}" for fault in _faults(table)]
        if not faults:
            found[name] = _entry(name, table)
    if faults:
        raise BadCatalogue("\n".join(faults))
    return MappingProxyType(found)


def _entry(name: str, table: Mapping[str, Any]) -> CatalogueEntry:
    plain = {key: value for key, value in table.items() if key not in ("failure", "progress")}
    plain |= {key: tuple(table[key]) for key in _LISTS if key in table}
    plain |= {key: MappingProxyType(dict(table[key])) for key in _TABLES if key in table}
    if "options" in table:
        plain["options"] = MappingProxyType({key: tuple(words) for key, words in table["options"].items()})
    return CatalogueEntry(
        name=name,
        failures=tuple(KnownFailure(**row) for row in table.get("failure", ())),
        progress=tuple(ProgressMark(**row) for row in table.get("progress", ())),
        **plain,
    )


def _faults(table: Mapping[str, Any]) -> list[str]:
    known = {item.name for item in fields(CatalogueEntry)} - {"name", "failures"} | {"failure"}
    needed = {"title", "protocols", "command", "arguments", "port", "loaded", "ready_timeout_s"}
    needed |= {"health_path", "models_path", "metrics_path", "cold_start_s"}
    faults = [f"unknown key {key}" for key in table if key not in known]
    faults += [f"{key} is missing" for key in sorted(needed - set(table))]
    rows = [*table.get("failure", ()), *table.get("progress", ())]
    faults += [fault for row in rows for fault in _pattern_faults(row)]
    faults += [
        f"{key} is not a path" for key in ("health_path", "models_path") if not _is_path(table.get(key, ""))
    ]
    if len(table.get("cold_start_s", ())) != 2:
        faults.append("cold_start_s must be the usual range, two numbers")
    return faults


def _pattern_faults(row: Mapping[str, Any]) -> list[str]:
    try:
        groups = re.compile(row.get("pattern", "(")).groupindex
    except re.error as error:
        return [f"{row.get('name', row.get('text'))}: the pattern is not valid: {error}"]
    used = set(re.findall(r"\{(\w+)\}", row.get("hint", "")))
    return [
        f"{row['name']}: the hint names {group}, the pattern does not" for group in sorted(used - set(groups))
    ]


def _is_path(value: str) -> bool:
    return value == "" or value.startswith("/")
