"""The acceptance file: `[load.NAME]` tables and `[[slo]]` rows, overlaid by id on the shipped defaults."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rackgate.config.problems import ConfigError, nearest, problems_of, read_toml
from rackgate.load import Arrival, Limits, Load
from rackgate.record import digest_of
from rackgate.slo import STAGES, Op, Scope, Severity, Slo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["PROFILES", "Acceptance", "Override", "load_acceptance"]

PROFILES = ("smoke", "ci", "golive", "signoff", "strict")
STATISTICS = ("value", "mean", "max", "p50", "p90", "p95", "p99", "p999")

_LISTS = ("profiles", "clauses")
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitsTable(_Table):
    """`[load.NAME.limits]`, seconds."""

    connect_s: _Positive = 5.0
    first_token_s: _Positive = 30.0
    stall_s: _Positive = 30.0
    total_s: _Positive = 300.0


class LoadTable(_Table):
    """`[load.NAME]`."""

    prompt_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    arrival: Arrival = Arrival.CLOSED
    concurrency: int = Field(default=1, ge=1)
    rate_per_s: _Positive | None = None
    duration_s: _Positive | None = None
    looks: list[Annotated[int, Field(ge=1)]] = Field(default=[], max_length=3)
    warmup_requests: int = Field(default=3, ge=0)
    workload: str = Field(
        default="assistant", pattern="^(assistant|batch|long_context|audio_video|embedding)$"
    )
    seed: int = 1
    limits: LimitsTable = LimitsTable()
    ttft_bound_ms: _Positive | None = None
    tpot_bound_ms: _Positive | None = None
    reason: str = ""


class SloTable(_Table):
    """`[[slo]]`."""

    id: str = Field(pattern=r"^[a-z0-9_]+\.[a-z0-9_]+$")
    metric: str
    statistic: str = Field(default="value", pattern=f"^({'|'.join(STATISTICS)})$")
    op: Op
    bound: float = Field(allow_inf_nan=False)
    unit: str
    scope: Scope
    source: str = Field(min_length=1)
    load: str | None = None
    window: str = Field(default="load", pattern="^(load|fault|recovery)$")
    severity: Severity = Severity.BLOCKER
    min_count: int = Field(default=1, ge=1)
    vantage: str = Field(default="endpoint", pattern="^(endpoint|tenant|operator)$")
    profiles: list[Annotated[str, Field(pattern=f"^({'|'.join(PROFILES)})$")]] = []
    applies_to: dict[str, list[str]] = {}
    clauses: list[str] = []
    hint: str = ""
    reason: str = ""
    disabled: bool = False


class _File(_Table):
    load: dict[str, dict[str, Any]] = {}
    slo: list[dict[str, Any]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A row or load that a later file changed, the fields it changed, and why."""

    id: str
    fields: tuple[str, ...]
    reason: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What was agreed for one profile."""

    profile: str
    loads: Mapping[str, Load]
    slos: tuple[Slo, ...]
    overrides: tuple[Override, ...]
    files: tuple[str, ...]
    digest: str

    def slo(self, slo_id: str) -> Slo | None:
        """Return the row with this id."""
        return next((row for row in self.slos if row.id == slo_id), None)


def load_acceptance(
    path: Path | None, profile: str, *, units: Mapping[str, str], engines: int = 1
) -> Acceptance:
    """Return shipped defaults, the profile's changes and the site's file on top, judged for consistency.

    `units` maps each known metric to its unit; `engines` is the number of engines that share a pool.
    Raises `ConfigError` with all problems.
    """
    if profile not in PROFILES:
        raise ConfigError([f"--rack-profile: no profile '{profile}'{nearest(profile, PROFILES)}"])
    shipped = files("rackgate.config").joinpath("acceptance")
    layers = [
        (f"shipped {name}", Path(str(shipped.joinpath(name))))
        for name in ("defaults.toml", f"{profile}.toml")
    ]
    if path is not None:
        layers.append((str(path), path))
    merge = _Merge()
    for label, layer in layers:
        merge.add(label, read_toml(layer))
    loads, slos = merge.nouns(profile)
    problems = merge.problems + [
        problem for row in slos for problem in _impossible(row, loads, units, engines)
    ]
    problems += _contradicting(slos)
    if problems:
        raise ConfigError(problems)
    content = {"loads": merge.loads, "slos": merge.rows, "profile": profile}
    return Acceptance(
        profile=profile,
        loads=loads,
        slos=tuple(slos),
        overrides=tuple(merge.overrides),
        files=tuple(label for label, _ in layers),
        digest=digest_of(content),
    )


class _Merge:
    """Layers of raw tables by id; every problem of every layer is kept."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.loads: dict[str, dict[str, Any]] = {}
        self.owner: dict[str, str] = {}
        self.overrides: list[Override] = []
        self.problems: list[str] = []

    def add(self, label: str, data: Mapping[str, Any]) -> None:
        try:
            parsed = _File.model_validate(data)
        except ValidationError as error:
            self.problems += problems_of(error, _File, label)
            return
        for name, table in parsed.load.items():
            self._lay(self.loads, name, f"load.{name}", table, label, set(LoadTable.model_fields))
        seen: set[str] = set()
        for index, row in enumerate(parsed.slo):
            row_id = row.get("id")
            if not isinstance(row_id, str):
                self.problems.append(f"{label}: slo[{index}].id: missing")
            elif row_id in seen:
                self.problems.append(f"{label}: slo '{row_id}' stands twice in this file")
            else:
                seen.add(row_id)
                self._lay(self.rows, row_id, f"slo '{row_id}'", row, label, set(SloTable.model_fields))

    def _lay(
        self,
        into: dict[str, dict[str, Any]],
        key: str,
        what: str,
        table: dict[str, Any],
        label: str,
        valid: set[str],
    ) -> None:
        self.problems += [
            f"{label}: {what}.{name}: unknown key{nearest(name, valid)}"
            for name in table
            if name not in valid
        ]
        table = {name: value for name, value in table.items() if name in valid}
        if key in into:
            changed = tuple(sorted(set(table) - {"id", "reason"}))
            if not table.get("reason"):
                self.problems.append(f"{label}: {what}: overrides {self.owner[what]} without a reason")
            self.overrides.append(
                Override(id=key, fields=changed, reason=table.get("reason", ""), file=label)
            )
        into[key] = {**into.get(key, {}), **table}
        self.owner[what] = label

    def nouns(self, profile: str) -> tuple[dict[str, Load], list[Slo]]:
        loads = {}
        for name, raw in self.loads.items():
            try:
                loads[name] = _load(name, LoadTable.model_validate(raw))
            except ValidationError as error:
                self.problems += problems_of(error, LoadTable, self.owner[f"load.{name}"], f"load.{name}")
        slos = []
        for row_id, raw in self.rows.items():
            owner = self.owner[f"slo '{row_id}'"]
            try:
                table = SloTable.model_validate(raw)
            except ValidationError as error:
                self.problems += problems_of(error, SloTable, owner, f"slo '{row_id}'")
                continue
            if not table.disabled and (not table.profiles or profile in table.profiles):
                slos.append(_slo(table, owner))
        return loads, slos


def _load(name: str, table: LoadTable) -> Load:
    fields = {
        key: getattr(table, key) for key in LoadTable.model_fields if key not in ("limits", "looks", "reason")
    }
    return Load(name=name, looks=tuple(table.looks), limits=Limits(**table.limits.model_dump()), **fields)


def _slo(table: SloTable, owner: str) -> Slo:
    fields = {key: getattr(table, key) for key in SloTable.model_fields if key != "disabled"}
    fields.update({key: tuple(fields[key]) for key in _LISTS})
    fields["applies_to"] = {key: tuple(values) for key, values in table.applies_to.items()}
    return Slo(stage=table.id.split(".")[0], origin=owner, **fields)


def _impossible(row: Slo, loads: Mapping[str, Load], units: Mapping[str, str], engines: int) -> list[str]:
    where = f"{row.origin}: slo '{row.id}'"
    problems = []
    if row.stage not in STAGES:
        problems.append(f"{where}: no stage '{row.stage}'{nearest(row.stage, STAGES)}")
    if row.metric not in units:
        problems.append(f"{where}.metric: no metric '{row.metric}'{nearest(row.metric, units)}")
    elif units[row.metric] != row.unit:
        problems.append(f"{where}.unit: '{row.unit}', but {row.metric} is measured in '{units[row.metric]}'")
    if row.bound < 0 and row.metric != "temperature_c":
        problems.append(f"{where}.bound: {row.bound:g} {row.unit} cannot be negative")
    if row.load is not None and row.load not in loads:
        problems.append(f"{where}.load: no load '{row.load}'{nearest(row.load, loads)}")
    elif row.load is not None:
        problems += _unreachable(row, loads[row.load], where, engines)
    return problems


def _unreachable(row: Slo, load: Load, where: str, engines: int) -> list[str]:
    from rackgate.statistics.percentiles import samples_needed

    if load.open and (load.rate_per_s is None or load.duration_s is None):
        return [f"{where}.load: open load '{load.name}' needs rate_per_s and duration_s"]
    if not load.open and (not load.looks or list(load.looks) != sorted(set(load.looks))):
        return [f"{where}.load: closed load '{load.name}' needs looks that grow, such as [105, 210, 420]"]
    if not row.statistic.startswith("p"):
        return []
    quantile = float(f"0.{row.statistic[1:]}")
    looks = max(1, len(load.looks))
    needed = samples_needed(quantile, 1 - 0.05 / looks)
    planned = load.planned_requests * (engines if row.scope in (Scope.POOL, Scope.RACK, Scope.NODE) else 1)
    if planned < needed:
        return [
            (
                f"{where}.statistic: {row.statistic} needs {needed} requests to be decided,"
                f" load '{load.name}' plans {planned}"
            )
        ]
    return []


def _contradicting(slos: Sequence[Slo]) -> list[str]:
    groups: dict[tuple[object, ...], list[Slo]] = defaultdict(list)
    for row in slos:
        groups[(row.stage, row.metric, row.statistic, row.load, row.scope, row.window)].append(row)
    problems = []
    for rows in groups.values():
        least = [row for row in rows if row.op is Op.AT_LEAST]
        most = [row for row in rows if row.op is Op.AT_MOST]
        problems += [
            f"{low.origin}: slo '{low.id}' asks {low.limit}, but '{high.id}' asks {high.limit}"
            for low in least
            for high in most
            if low.bound > high.bound and not low.applies_to and not high.applies_to
        ]
    return problems
