"""What a run left behind, read without trusting it: records by kind, Parquet files on demand."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rackgate.evidence.record import SCHEMA
from rackgate.nouns.target import GRADES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


_BATCH_ROWS = 1_000_000
_JUDGED = ("plan", "verdict", "gate", "end")


class Unreadable(Exception):
    """A file of evidence is missing or broken; the text says which and how, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """The evidence of one run.

    `records` are all readable records in the order of the file, `by_kind` the same by kind. `digest` is
    the SHA-256 of `records.jsonl` as it lies there, `digest_before_end` of its lines before the `end`
    record. `problems` says in words what could not be read. Samples and telemetry are read when asked.
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
    def judged_again(self) -> Mapping[str, Any]:
        """What a later judgement says of itself and of the run's own; empty for the run's own."""
        said = self.run.get("judged_again")
        return said if isinstance(said, dict) else {}

    @property
    def grade(self) -> str:
        """What the evidence is worth: the least that any record says; a run cannot be worth more later."""
        said = [self.run.get("grade"), *(event.get("grade") for event in self.of("event"))]
        said += [self.end.get("grade")] if self.end else []
        told = [str(grade) for grade in said if grade]
        known = [grade for grade in GRADES if grade in told]
        return known[0] if known else told[0] if told else ""

    @property
    def checks(self) -> tuple[Mapping[str, Any], ...]:
        """The plan: every check that was asked."""
        return tuple(
            check for plan in self.of("plan") for check in plan.get("checks") or () if isinstance(check, dict)
        )

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
            raise Unreadable(f"{name} cannot be read: {self._why(error)}") from error

    def telemetry_range_ns(self) -> tuple[int, int] | None:
        """First and last moment of the telemetry, from the files' footers; None without any."""
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
        """Yield the columns of the telemetry as pyarrow record batches, one part after the other.

        Raises `Unreadable` when there is none; broken parts are left out and told by
        `telemetry_problems`.
        """
        import pyarrow as pa

        parts, problems = self._readable_parts()
        if not parts:
            raise Unreadable("; ".join(problems) or "the run recorded no telemetry")
        for part in parts:
            try:
                yield from part.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns))
            except (OSError, pa.ArrowException, ValueError, KeyError) as error:
                raise Unreadable(f"telemetry cannot be read: {self._why(error)}") from error

    def telemetry_problems(self) -> tuple[str, ...]:
        """What parts of the telemetry cannot be read, in words."""
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
                problems.append(f"{path.name} cannot be read: {self._why(error)}")
        return parts, tuple(problems)

    def _why(self, error: BaseException) -> str:
        """The first line of an error, without the paths of the machine that renders."""
        text = str(error) or type(error).__name__
        return (
            text.splitlines()[0][:300].replace(f"{self.folder.resolve()}/", "").replace(f"{self.folder}/", "")
        )

    def _inside(self, name: str) -> Path:
        evidence = (self.folder / "evidence").resolve()
        path = (evidence / name).resolve()
        if not path.is_relative_to(evidence):
            raise Unreadable(f"{name} lies outside the evidence of the run")
        return path


def load_run(folder: Path) -> RunEvidence:
    """Read `evidence/records.jsonl` of a run folder.

    A line that is torn or is no record is left out and named in `problems`. Raises FileNotFoundError if
    the folder holds no records at all.
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
    """Return the run as a later judgement sees it: its plan, verdicts, gates and end in place of the own.

    Moments, digest and all that was measured stay the run's. Raises `Unreadable`.
    """
    try:
        told = [json.loads(line) for line in path.read_bytes().splitlines()]
        new, end = told[0], told[-1]
        moments = {str(one["check"]): one for one in run.of("verdict")}
        last = run.records[-1]
        placed = [
            _at_the_time_of(moments.get(str(one.get("check") or one.get("by")), last), one) for one in told
        ]
        facts = {name: new[name] for name in ("judged_again", "acceptance", "profile")}
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise Unreadable(f"{path.name} cannot be read: {error}") from error
    kept = [record for record in run.records[1:] if record["kind"] not in _JUDGED]
    own = {name: (run.end or {}).get(name) for name in ("digest", "records", "duration_s", "at", "t_ns")}
    records = [{**run.run, **facts}, *kept, *placed[1:-1], {**end, **own}]
    return replace(run, records=tuple(records), by_kind=_by_kind(records))


def _at_the_time_of(first: Mapping[str, Any], record: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**record, "at": first.get("at"), "t_ns": first.get("t_ns")}


def _by_kind(records: Iterable[Mapping[str, Any]]) -> dict[str, tuple[Mapping[str, Any], ...]]:
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        kinds.setdefault(str(record["kind"]), []).append(record)
    return {kind: tuple(group) for kind, group in kinds.items()}


def number_of(value: Any) -> float | None:
    """Return a number of a record; the strings "inf" and "-inf" are infinite, anything else is None."""
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
