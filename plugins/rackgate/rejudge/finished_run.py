"""A finished run, read from its records: the target, the loads and the direct measurements."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackgate.evidence.record import SCHEMA
from rackgate.nouns.decode import decode
from rackgate.nouns.load import Load
from rackgate.nouns.measurement import OPEN_WARNING, Bounds, Measurement, Reason, Symptom, missing
from rackgate.nouns.slo import Check
from rackgate.nouns.target import GRADES, Target

_Plain = dict[str, Any]


class NoEvidence(ValueError):
    """The folder holds no run that can be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """The records of a run folder, and the nouns in them. `digest` is the SHA-256 of `records.jsonl`."""

    folder: Path
    records: tuple[_Plain, ...]
    digest: str
    target: Target
    loads: Mapping[str, Load]

    def of(self, kind: str) -> Iterator[_Plain]:
        """Yield the records of a kind, in order."""
        return (record for record in self.records if record["kind"] == kind)

    @property
    def run(self) -> _Plain:
        """The first record."""
        return self.records[0]

    @property
    def end(self) -> _Plain | None:
        """The last record; None for a run that was interrupted."""
        return self.records[-1] if self.records[-1]["kind"] == "end" else None

    @property
    def grade(self) -> str:
        """The grade of the evidence: the lowest in any record."""
        said = {str(record["grade"]) for record in self.records if record.get("grade") in GRADES}
        return min(said, key=GRADES.index, default=GRADES[0])

    def verdicts(self) -> dict[str, str]:
        """Return the run's own verdicts by check; what it did not run is named by why (`gated` ...)."""
        return {
            str(record["check"]): str(record.get("skipped") or record["verdict"])
            for record in self.of("verdict")
        }

    def asked(self) -> frozenset[str]:
        """Return the checks that the run had planned."""
        return frozenset(str(check["id"]) for record in self.of("plan") for check in record["checks"])

    def recorded(self, check: Check) -> Measurement:
        """Return what the run measured for the same metric and entity, whatever its bound was then."""
        row = check.slo
        asked = (row.stage, row.metric, row.statistic, row.load, row.window, check.entity)
        for record in self.of("verdict"):
            told = (*(record.get(name) for name in ("stage", "metric", "statistic", "load")),)
            if (*told, record.get("window", "load"), record.get("entity")) == asked:
                return _measurement(record)
        text = "the run did not measure it"
        return missing(row.metric, check.entity, row.unit, Reason.ABSENT, text)


def read_finished(folder: Path) -> FinishedRun:
    """Return a run folder's evidence. Raises `NoEvidence` with the reason where there is none to judge."""
    path = folder / "evidence" / "records.jsonl"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NoEvidence(f"{path}: {error.strerror}") from error
    records: list[_Plain] = []
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break  # the torn last line of a killed run
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise NoEvidence(f"{path}: line {number} is no record: {error}") from error
    if not records or records[0].get("kind") != "run":
        raise NoEvidence(f"{path}: the first record is not of the kind 'run'")
    if records[0].get("schema") != SCHEMA:
        raise NoEvidence(f"{path}: schema {records[0].get('schema')}, this version reads {SCHEMA}")
    try:
        target = decode(Target, records[0]["target"])
        loads = {name: decode(Load, load) for name, load in records[0]["loads"].items()}
    except (KeyError, TypeError, ValueError) as error:
        raise NoEvidence(f"{path}: the first record cannot be read: {error!r}") from error
    return FinishedRun(
        folder=folder,
        records=tuple(records),
        digest=hashlib.sha256(content).hexdigest(),
        target=target,
        loads=loads,
    )


def _measurement(record: _Plain) -> Measurement:
    value = None if record["value"] is None else float(record["value"])
    told = record.get("message") if record.get("skipped") else record.get("detail")
    skipped = f"the run did not measure it: {told}" if record.get("skipped") else str(told or "")
    bounds = record.get("bounds")
    return Measurement(
        metric=record["metric"],
        entity=record["entity"],
        value=value,
        unit=record["unit"],
        count=int(record.get("count") or 0),
        bounds=None if bounds is None else Bounds(**{name: _float(side) for name, side in bounds.items()}),
        reason=Reason(record.get("reason") or Reason.ABSENT) if value is None else None,
        detail=skipped if value is None or record.get("reason") is None else "",
        source=str(record.get("measured_by") or ""),
        hint="",
        symptoms=tuple(Symptom(**one) for one in record.get("symptoms") or ()),
        beside=tuple(line for line in record.get("beside") or () if not line.startswith(OPEN_WARNING)),
    )


def _float(value: Any) -> Any:
    return None if value is None else float(value)
