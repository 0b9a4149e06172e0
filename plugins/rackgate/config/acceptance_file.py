"""Acceptance files: `[load.NAME]`, `[probe.NAME]` and `[[slo]]`, merged by id onto the shipped defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rackgate.config.acceptance_consistency import contradicting, impossible, unknown_names
from rackgate.config.acceptance_tables import PROFILES, AcceptanceTables, LoadTable, SloTable
from rackgate.config.probe_tables import ProbeTable, unanswerable
from rackgate.config.problems import ConfigError, nearest, problems_of, read_toml
from rackgate.evidence.record import digest_of
from rackgate.loadgen.sizing import accepted_error_ms
from rackgate.metrics.metric import Metric
from rackgate.metrics.probed import metrics_of_probes
from rackgate.nouns.load import Load
from rackgate.nouns.slo import Op, Slo
from rackgate.nouns.target import Target
from rackgate.probes.probe import Probe

_SHIPPED = files("rackgate.config").joinpath("acceptance")

_NOT_THE_LIMIT = frozenset({"hint", "layer", "clauses", "disabled"})
"""Fields of a row that do not change its bound, so that the source of the bound stays true."""

_INSTRUMENT_ROWS = ("selfcheck.measurement_error_p99", "selfcheck.schedule_lag_p99")
_TTFT_METRICS = ("ttft_ms", "survivor_ttft_ms")
_TAIL_STATISTICS = ("p90", "p95", "p99", "p999", "max")
"""An error of one request in a hundred moves a tail, and no median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A row, load or probe that a later file changed, the changed fields, and the reason."""

    id: str
    fields: tuple[str, ...]
    reason: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The agreed rows, loads and probes of one profile."""

    profile: str
    loads: Mapping[str, Load]
    slos: tuple[Slo, ...]
    overrides: tuple[Override, ...]
    files: tuple[str, ...]
    digest: str
    probes: Mapping[str, Probe] = field(default_factory=dict)

    def slo(self, slo_id: str) -> Slo | None:
        """Return the row with this id."""
        return next((row for row in self.slos if row.id == slo_id), None)


def load_acceptance(
    path: Path | None, profile: str, *, metrics: Mapping[str, Metric], target: Target | None
) -> Acceptance:
    """Return the shipped defaults with the changes of the profile and of the site's file.

    `metrics` are the registered ones by name; `target` is None where it could not be read. Raises
    `ConfigError` with all problems.
    """
    if profile not in PROFILES:
        raise ConfigError([f"--rack-profile: no profile '{profile}'{nearest(profile, PROFILES)}"])
    layers = [
        (f"shipped {name}", read_toml(Path(str(_SHIPPED.joinpath(name)))))
        for name in ("defaults.toml", "workloads.toml", "probes.toml", f"{profile}.toml")
    ]
    if path is not None:
        layers.append((str(path), read_toml(path)))
    return merge_layers(layers, profile, metrics=metrics, target=target)


def merge_layers(
    layers: Sequence[tuple[str, Mapping[str, Any]]],
    profile: str,
    *,
    metrics: Mapping[str, Metric],
    target: Target | None,
) -> Acceptance:
    """Return the acceptance of named, parsed files, each one over those before; raises `ConfigError`."""
    merged = _MergedTables()
    for label, data in layers:
        merged.add(label, data)
    probes = merged.parsed_probes()
    metrics = {**metrics, **metrics_of_probes(probes.values())}
    loads, slos = merged.parsed_loads_and_slos(profile)
    slos = _with_instrument_bounds(slos)
    problems = merged.problems + [
        problem
        for row_id, raw in merged.rows.items()
        for problem in unknown_names(raw, merged.where(row_id), merged.loads, metrics)
    ]
    problems += [problem for row in slos for problem in impossible(row, loads, metrics, target)]
    problems += [problem for row in slos for problem in unanswerable(row, probes)]
    problems += contradicting(slos)
    if problems:
        raise ConfigError(problems)
    return Acceptance(
        profile=profile,
        loads=loads,
        slos=tuple(slos),
        overrides=tuple(merged.overrides),
        files=tuple(label for label, _ in layers),
        digest=digest_of(
            {"loads": merged.loads, "probes": merged.probes, "slos": merged.rows, "profile": profile}
        ),
        probes=probes,
    )


@cache
def workloads() -> Mapping[str, Load]:
    """Return the shipped load of each class of work by its name."""
    tables = read_toml(Path(str(_SHIPPED.joinpath("workloads.toml"))))["load"]
    return {name: LoadTable.model_validate(table).to_load(name) for name, table in tables.items()}


def _with_instrument_bounds(slos: Sequence[Slo]) -> list[Slo]:
    """Return the rows, with the load generator's own bounds at most 2 % of the tightest TTFT tail."""
    tails = [
        row.bound
        for row in slos
        if row.metric in _TTFT_METRICS and row.statistic in _TAIL_STATISTICS and row.op is Op.AT_MOST
    ]
    limit_ms = accepted_error_ms(tails)
    return [
        replace(row, bound=limit_ms, source=f"2 % of the tightest bound of a TTFT tail, {min(tails):g} ms")
        if row.id in _INSTRUMENT_ROWS and tails and row.op is Op.AT_MOST and row.bound > limit_ms
        else row
        for row in slos
    ]


class _MergedTables:
    """Merges the raw tables of files by id, and keeps every problem of every file."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.loads: dict[str, dict[str, Any]] = {}
        self.probes: dict[str, dict[str, Any]] = {}
        self.owner: dict[str, str] = {}
        self.overrides: list[Override] = []
        self.problems: list[str] = []

    def add(self, label: str, data: Mapping[str, Any]) -> None:
        try:
            parsed = AcceptanceTables.model_validate(data)
        except ValidationError as error:
            self.problems += problems_of(error, AcceptanceTables, label)
            parsed = _readable(data)
        for name, table in parsed.load.items():
            self._merge(self.loads, name, f"load.{name}", table, label)
        for name, table in parsed.probe.items():
            self._merge(self.probes, name, f"probe.{name}", table, label)
        seen: set[str] = set()
        for index, row in enumerate(parsed.slo):
            row_id = row.get("id")
            if not isinstance(row_id, str):
                wrong = "missing" if row_id is None else f"must be a string (given: {row_id!r:.60})"
                self.problems.append(f"{label}: slo[{index}].id: {wrong}")
            elif row_id in seen:
                self.problems.append(f"{label}: slo '{row_id}' stands twice in this file")
            else:
                seen.add(row_id)
                self._merge(self.rows, row_id, f"slo '{row_id}'", row, label)

    def _merge(
        self, into: dict[str, dict[str, Any]], key: str, what: str, table: dict[str, Any], label: str
    ) -> None:
        kind = SloTable if into is self.rows else LoadTable if into is self.loads else ProbeTable
        valid = set(kind.model_fields)
        self.problems += [
            f"{label}: {what}.{name}: unknown key{nearest(name, valid)}"
            for name in table
            if name not in valid
        ]
        table = {name: value for name, value in table.items() if name in valid}
        before = into.get(key)
        if before is not None:
            reason = table.get("reason")
            changed = tuple(sorted(set(table) - {"id", "reason"}))
            if not isinstance(reason, str) or not reason.strip():
                self.problems.append(f"{label}: {what}: overrides {self.owner[what]} without a reason")
            self.overrides.append(Override(id=key, fields=changed, reason=str(reason or ""), file=label))
            if into is self.rows and "source" not in table and set(changed) - _NOT_THE_LIMIT:
                table["source"] = _changed_source(before, label, str(reason or ""))
        into[key] = {**(before or {}), **table}
        self.owner[what] = label

    def where(self, row_id: str) -> str:
        """Return the last file that changed a row, and the row."""
        what = f"slo '{row_id}'"
        return f"{self.owner[what]}: {what}"

    def parsed_probes(self) -> dict[str, Probe]:
        """Return the valid probes; the problems of the others are kept."""
        probes: dict[str, Probe] = {}
        for name, raw in self.probes.items():
            owner = self.owner[f"probe.{name}"]
            try:
                probes[name] = ProbeTable.model_validate(raw).to_probe(name)
            except ValidationError as error:
                self.problems += problems_of(error, ProbeTable, owner, f"probe.{name}")
            except ValueError as error:
                self.problems.append(f"{owner}: probe.{name}.{error}")
        return probes

    def parsed_loads_and_slos(self, profile: str) -> tuple[dict[str, Load], list[Slo]]:
        """Return the valid loads, and the valid rows of the profile; the problems of the others are kept."""
        loads: dict[str, Load] = {}
        for name, raw in self.loads.items():
            try:
                loads[name] = LoadTable.model_validate(raw).to_load(name)
            except ValidationError as error:
                self.problems += problems_of(error, LoadTable, self.owner[f"load.{name}"], f"load.{name}")
            except ValueError as error:  # its trace or its tokeniser cannot be used
                self.problems.append(f"{self.owner[f'load.{name}']}: load.{name}: {error}")
            else:
                owner = self.owner[f"load.{name}"]
                self.problems += [f"{owner}: load.{name}.{problem}" for problem in loads[name].problems]
        slos: list[Slo] = []
        for row_id, raw in self.rows.items():
            owner = self.owner[f"slo '{row_id}'"]
            try:
                table = SloTable.model_validate(raw)
            except ValidationError as error:
                self.problems += problems_of(error, SloTable, owner, f"slo '{row_id}'")
                continue
            if not table.disabled and (not table.profiles or profile in table.profiles):
                slos.append(table.to_slo(owner))
        return loads, slos


def _readable(data: Mapping[str, Any]) -> AcceptanceTables:
    """Return the readable tables of a file with mistakes, so that their own mistakes are reported too."""
    rows = data.get("slo")
    return AcceptanceTables(
        load=_tables(data.get("load")),
        probe=_tables(data.get("probe")),
        slo=[row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else [],
    )


def _tables(named: Any) -> dict[str, dict[str, Any]]:
    items = named.items() if isinstance(named, dict) else ()
    return {name: table for name, table in items if isinstance(table, dict)}


def _changed_source(before: Mapping[str, Any], file: str, reason: str) -> str:
    """Return the source of a changed limit: the old source stands for the old limit only."""
    bound = before.get("bound")
    shown = f"{bound:g}" if isinstance(bound, int | float) else str(bound)
    limit = f"{before.get('op')} {shown} {before.get('unit')}".strip()
    return f"changed by {file}: {reason}; before: {before.get('source')} ({limit})"
