"""`[engine_kind.NAME]` of a target file: a kind of engine that does not ship, in the catalogue's keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from rackgate.config.fields import Table
from rackgate.config.problems import problems_of
from rackgate.engines.catalogue import OWN_KIND, catalogue

_KEY = "engine_kind"


def _path(text: str) -> str:
    if text and not text.startswith("/"):
        raise ValueError("must begin with '/', or be empty")
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    return text


_Path = Annotated[str, AfterValidator(_path)]
_Pattern = Annotated[str, AfterValidator(_pattern)]


class FailureTable(Table):
    """`[[engine_kind.NAME.failure]]`: a known failure, found in the engine's log."""

    name: str
    layer: Literal["service", "model", "network"]
    pattern: _Pattern
    hint: str
    cause: Literal["environment", "configuration", "credentials", "model", "engine"] = "engine"

    @model_validator(mode="after")
    def _groups(self) -> Self:
        lost = set(re.findall(r"\{(\w+)\}", self.hint)) - set(re.compile(self.pattern).groupindex)
        if lost:
            raise ValueError(f"the hint names {', '.join(sorted(lost))}, which the pattern does not capture")
        return self


class ProgressTable(Table):
    """`[[engine_kind.NAME.progress]]`: a line of the log that tells how far a start is."""

    pattern: _Pattern
    text: str


class EngineKindTable(Table):
    """`[engine_kind.NAME]`; `command` starts it as a process, `arguments` follow the image's entry point."""

    title: str = ""
    protocols: list[str] = ["openai"]
    image: str = ""
    command: list[str] = []
    arguments: list[str] = []
    port: int = Field(default=8000, ge=1, le=65535)
    health_path: _Path = ""
    models_path: _Path = "/v1/models"
    metrics_path: str = "/metrics"
    cold_start_s: list[float] = Field(default=[0.0, 0.0], min_length=2, max_length=2)
    ready_timeout_s: float = Field(default=900.0, gt=0)
    loaded: str = ""
    tells_first_tokens: bool = False
    note: str = ""
    shm_size: str = ""
    ipc: str = ""
    cache_folder: str = ""
    secrets: list[str] = []
    ulimits: dict[str, int] = {}
    options: dict[str, list[str]] = {}
    environment: dict[str, str] = {}
    failure: list[FailureTable] = []
    progress: list[ProgressTable] = []

    @model_validator(mode="after")
    def _startable(self) -> Self:
        if not (self.command or self.arguments or self.image):
            raise ValueError("needs a command, or an image with its arguments: nothing says how it starts")
        return self


def with_kinds(data: Mapping[str, Any], file: str) -> tuple[dict[str, Any], list[str]]:
    """Return the data of a target file with the kind of each engine in its settings, and all problems.

    With a problem in a kind, no engine has one.
    """
    tables = data.get(_KEY, {})
    if not isinstance(tables, dict):
        return dict(data), [f"{file}: {_KEY}: must be tables, one [{_KEY}.NAME] each"]
    kinds, problems = {}, []
    for name, table in tables.items():
        if name in catalogue():
            problems.append(f"{file}: {_KEY}.{name}: this kind ships: give yours another name")
            continue
        try:
            kinds[name] = EngineKindTable.model_validate(table).model_dump()
        except ValidationError as error:
            problems += problems_of(error, EngineKindTable, f"{file}: {_KEY}.{name}")
    rest = {key: value for key, value in data.items() if key != _KEY}
    if problems:
        return rest, problems
    if isinstance(rest.get("engine"), list):
        rest["engine"] = [_with_kind(table, kinds) for table in rest["engine"]]
    if "gateway" in rest:
        rest["gateway"] = _with_kind(rest["gateway"], kinds)
    return rest, _reserved_settings(data, file)


def _with_kind(table: Any, kinds: Mapping[str, dict[str, Any]]) -> Any:
    settings = table.get("settings") if isinstance(table, dict) else None
    if not isinstance(settings, dict) or settings.get("engine") not in list(kinds):
        return table
    name = settings["engine"]
    return {**table, "settings": {**settings, OWN_KIND: kinds[name]}}


def _reserved_settings(data: Mapping[str, Any], file: str) -> list[str]:
    """Return a problem for engines that have the reserved key in their settings."""
    engines = data.get("engine")
    tables = [*(engines if isinstance(engines, list) else []), data.get("gateway")]
    settings = [table.get("settings") for table in tables if isinstance(table, dict)]
    wrong = [table for table in settings if isinstance(table, dict) and OWN_KIND in table]
    return [f"{file}: settings: unknown key '{OWN_KIND}': write [{_KEY}.NAME]"] * bool(wrong)
