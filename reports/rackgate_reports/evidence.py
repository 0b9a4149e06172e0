"""Read a run folder without trusting it: records by kind, Parquet files on demand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rackgate.evidence.record import SCHEMA
from rackgate.nouns.target import GRADES

_BATCH_ROWS = 1_000_000
_JUDGEMENT_KINDS = ("plan", "verdict", "gate", "end")


class Unreadable(Exception):
    """A file of evidence is missing or broken; the text names the file and the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """The evidence of one run.

    `records` are all readable records in the order of the file, `by_kind` groups them by kind. `digest` is
    the SHA-256 of `records.jsonl`, `digest_before_end` that of its lines before the `end` record.
    `problems` says in words what could not be read. Samples and telemetry are read on demand.
    """

    folder: Path
    records: tuple[Mapping[str, Any], ...]
    by_kind: Mapping[str, tuple[Mapping[str, Any], ...]]
    digest: str
    digest_before_end: str
    problems: tuple[str, ...] = ()

    def of(self, kind: str) -> tuple[Mapping[str, Any], ...]:
        """All records of one kind."""
        return self.by_kind.get(kind, ())

    @property
    def run(self) -> Mapping[str, Any]:
        """The first record; empty if it is missing."""
        return self.of("run")[0] if self.of("run") else {}

    @property
    def end(self) -> Mapping[str, Any] | None:
        """The last record; None for a run that was interrupted."""
        return self.of("end")[-1] if self.of("end") else None

    @property
    def target(self) -> Mapping[str, Any]:
        """The rack as the first record describes it."""
        return mapping(self.run.get("target"))

    @property
    def nodes(self) -> list[Mapping[str, Any]]:
        """The nodes of the target."""
        return mappings(self.target.get("nodes"))

    @property
    def cards(self) -> list[Mapping[str, Any]]:
        """The cards of all nodes of the target."""
        return [card for node in self.nodes for card in mappings(node.get("cards"))]

    @property
    def engines(self) -> list[Mapping[str, Any]]:
        """The engines of the target."""
        return mappings(self.target.get("engines"))

    @property
    def judged_again(self) -> Mapping[str, Any]:
        """The facts of a later judgement; empty for the run's own."""
        return mapping(self.run.get("judged_again"))

    @property
    def grade(self) -> str:
        """The lowest evidence grade that any record states: later records cannot raise it."""
        records = (self.run, *self.of("event"), self.end or {})
        stated = [str(record["grade"]) for record in records if record.get("grade")]
        known = [grade for grade in GRADES if grade in stated]
        return (known or stated or [""])[0]

    @property
    def checks(self) -> tuple[Mapping[str, Any], ...]:
        """Every check of the plan."""
        return tuple(check for plan in self.of("plan") for check in mappings(plan.get("checks")))

    def samples(self, load: Mapping[str, Any], columns: Sequence[str]) -> Any:
        """Return the columns of one load's samples as a pyarrow table; raises `Unreadable`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        name = load.get("samples")
        if not name:
            raise Unreadable(load.get("detail") or "the load left no file of samples")
        try:
            return pq.read_table(self._inside(str(name)), columns=list(columns))
        except FileNotFoundError as error:
            raise Unreadable(f"{name} is missing") from error
        except (OSError, pa.ArrowException, ValueError, KeyError) as error:
            raise Unreadable(f"{name} cannot be read: {self._reason(error)}") from error

    def telemetry_range_ns(self) -> tuple[int, int] | None:
        """First and last timestamp of the telemetry, from the files' footers; None without telemetry."""
        lows: list[int] = []
        highs: list[int] = []
        for part in self._readable_parts()[0]:
            footer = part.metadata
            column = part.schema_arrow.names.index("t_ns") if "t_ns" in part.schema_arrow.names else None
            for group in range(footer.num_row_groups if column is not None else 0):
                statistics = footer.row_group(group).column(column).statistics
                if statistics is not None and statistics.has_min_max:
                    lows.append(int(statistics.min))
                    highs.append(int(statistics.max))
        return (min(lows), max(highs)) if lows else None

    def telemetry(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield columns of the telemetry as pyarrow record batches.

        Broken parts are left out and listed by `telemetry_problems`. Raises `Unreadable` without any part.
        """
        import pyarrow as pa

        parts, problems = self._readable_parts()
        if not parts:
            raise Unreadable("; ".join(problems) or "the run recorded no telemetry")
        for part in parts:
            try:
                yield from part.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns))
            except (OSError, pa.ArrowException, ValueError, KeyError) as error:
                raise Unreadable(f"telemetry cannot be read: {self._reason(error)}") from error

    def telemetry_problems(self) -> tuple[str, ...]:
        """The parts of the telemetry that cannot be read, with the reason."""
        return self._readable_parts()[1]

    def _readable_parts(self) -> tuple[list[Any], tuple[str, ...]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        parts: list[Any] = []
        problems: list[str] = []
        for path in sorted((self.folder / "evidence" / "telemetry.parquet").glob("*.parquet")):
            try:
                parts.append(pq.ParquetFile(path))
            except (OSError, pa.ArrowException, ValueError) as error:
                problems.append(f"{path.name} cannot be read: {self._reason(error)}")
        return parts, tuple(problems)

    def _reason(self, error: BaseException) -> str:
        """Return the first line of an error without the path of the run folder."""
        line = (str(error) or type(error).__name__).splitlines()[0][:300]
        return line.replace(f"{self.folder.resolve()}/", "").replace(f"{self.folder}/", "")

    def _inside(self, name: str) -> Path:
        evidence = (self.folder / "evidence").resolve()
        path = (evidence / name).resolve()
        if not path.is_relative_to(evidence):
            raise Unreadable(f"{name} lies outside the evidence of the run")
        return path


def load_run(folder: Path) -> RunEvidence:
    """Read `evidence/records.jsonl` of a run folder.

    A torn line, or a line that is no record, is left out and named in `problems`. Raises FileNotFoundError
    if the folder has no such file.
    """
    digest = hashlib.sha256()
    before_end = ""
    records: list[Mapping[str, Any]] = []
    problems: list[str] = []
    with (folder / "evidence" / "records.jsonl").open("rb") as file:
        for number, line in enumerate(file, 1):
            record = _record(line)
            if record is None:
                problems.append(f"line {number} of records.jsonl is not a whole record and was left out")
            else:
                records.append(record)
                before_end = digest.hexdigest() if record["kind"] == "end" else before_end
            digest.update(line)
    if any(record.get("schema") != SCHEMA for record in records):
        problems.append(f"some records are not of schema {SCHEMA}: this version may misread them")
    return RunEvidence(
        folder=folder,
        records=tuple(records),
        by_kind=_by_kind(records),
        digest=digest.hexdigest(),
        digest_before_end=before_end,
        problems=tuple(problems),
    )


def with_judgement(run: RunEvidence, path: Path) -> RunEvidence:
    """Return the run with the plan, verdicts, gates and end of a later judgement in place of its own.

    Timestamps, digest and measurements stay those of the run. Raises `Unreadable`.
    """
    try:
        judgement = [json.loads(line) for line in path.read_bytes().splitlines()]
        first, end = judgement[0], judgement[-1]
        judged_at = {str(verdict["check"]): verdict for verdict in run.of("verdict")}
        timed = [
            _at_time_of(judged_at.get(str(record.get("check") or record.get("by")), run.records[-1]), record)
            for record in judgement[1:-1]
        ]
        header = {name: first[name] for name in ("judged_again", "acceptance", "profile")}
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise Unreadable(f"{path.name} cannot be read: {error}") from error
    kept = [record for record in run.records[1:] if record["kind"] not in _JUDGEMENT_KINDS]
    own = {name: (run.end or {}).get(name) for name in ("digest", "records", "duration_s", "at", "t_ns")}
    records = [{**run.run, **header}, *kept, *timed, {**end, **own}]
    return replace(run, records=tuple(records), by_kind=_by_kind(records))


def _at_time_of(other: Mapping[str, Any], record: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**record, "at": other.get("at"), "t_ns": other.get("t_ns")}


def _by_kind(records: Iterable[Mapping[str, Any]]) -> dict[str, tuple[Mapping[str, Any], ...]]:
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        kinds.setdefault(str(record["kind"]), []).append(record)
    return {kind: tuple(group) for kind, group in kinds.items()}


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object of a record; anything else is empty."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """Return the JSON objects in a list of a record."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list | tuple) else []


def number_of(value: Any) -> float | None:
    """Return a number of a record; the strings "inf" and "-inf" are infinite, other values are None."""
    if value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _record(line: bytes) -> Mapping[str, Any] | None:
    try:
        record = json.loads(line.decode("utf-8", "replace"))
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("kind"), str) else None
