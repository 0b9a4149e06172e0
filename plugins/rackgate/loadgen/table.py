"""Samples as columns: one row per request, raw and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rackgate.load import Origin
from rackgate.sample import Outcome, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from numpy.typing import NDArray

    Column: TypeAlias = NDArray[Any]

__all__ = ["SampleTable"]

_TEXT = (
    "request_id",
    "engine",
    "load",
    "label",
    "outcome",
    "served_by",
    "token_source",
    "finish_reason",
    "text_digest",
)
_NUMBERS = (
    "sent_ns", "first_byte_ns", "first_token_ns", "first_answer_ns", "last_token_ns", "done_ns",
    "prompt_tokens", "output_tokens", "http_status",
)  # fmt: skip
_DERIVED = (
    "ttft_ms", "ttft_sent_ms", "time_to_first_answer_ms", "tpot_ms", "e2e_ms", "schedule_lag_ms",
    "tokens_per_chunk",
)  # fmt: skip


class SampleTable:
    """A columnar view of samples.

    Columns are `Sample`'s fields and, in ms from the load's origin, `ttft_ms`,
    `time_to_first_answer_ms`, `e2e_ms`; also `ttft_sent_ms` (always from sending), `tpot_ms`,
    `schedule_lag_ms`, `tokens_per_chunk` and `burst`. Numbers that may be missing are float64 with NaN,
    which never leaves the table; missing texts are empty. `tpot_ms` is NaN for a burst, whose chunks a
    hop has delayed: it is no measurement of the engine.
    """

    def __init__(self, columns: dict[str, Column], origin: Origin) -> None:
        self._columns = columns
        self.origin = origin

    @classmethod
    def from_samples(cls, samples: Sequence[Sample], origin: Origin) -> SampleTable:
        """Return the table of some samples, in their order."""
        columns: dict[str, Column] = {
            name: np.array([getattr(sample, name) or "" for sample in samples], dtype=np.str_)
            for name in _TEXT
        }
        columns["detail"] = _objects(sample.detail for sample in samples)
        columns["warnings"] = _objects(sample.warnings for sample in samples)
        columns["token_ns"] = _objects(np.array(sample.token_ns, dtype=np.int64) for sample in samples)
        columns["scheduled_ns"] = np.array([sample.scheduled_ns for sample in samples], dtype=np.int64)
        columns["look"] = np.array([sample.look for sample in samples], dtype=np.int64)
        columns["warmup"] = np.array([sample.warmup for sample in samples], dtype=np.bool_)
        columns["burst"] = np.array(["burst" in sample.warnings for sample in samples], dtype=np.bool_)
        for name in _NUMBERS:
            columns[name] = _floats(getattr(sample, name) for sample in samples)
        columns["ttft_ms"] = _floats(sample.ttft_ms(origin) for sample in samples)
        columns["ttft_sent_ms"] = _floats(sample.ttft_ms(Origin.SENT) for sample in samples)
        columns["time_to_first_answer_ms"] = _floats(
            sample.time_to_first_answer_ms(origin) for sample in samples
        )
        columns["e2e_ms"] = _floats(sample.e2e_ms(origin) for sample in samples)
        columns["tpot_ms"] = _floats(
            None if "burst" in sample.warnings else sample.tpot_ms for sample in samples
        )
        columns["schedule_lag_ms"] = _floats(sample.schedule_lag_ms for sample in samples)
        columns["tokens_per_chunk"] = _floats(sample.tokens_per_chunk for sample in samples)
        return cls(columns, origin)

    def __len__(self) -> int:
        return len(self._columns["scheduled_ns"])

    def __getattr__(self, name: str) -> Column:
        columns = self.__dict__.get("_columns", {})
        if name not in columns:
            raise AttributeError(name)
        column: Column = columns[name]
        return column

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(self._columns)

    def column(self, name: str) -> Column:
        """Return one column. Raises `KeyError`."""
        return self._columns[name]

    def where(self, mask: Column) -> SampleTable:
        """Return the rows for which `mask` is true."""
        return SampleTable({name: column[mask] for name, column in self._columns.items()}, self.origin)

    @property
    def measured(self) -> SampleTable:
        """The rows that are judged: all but warm-up."""
        return self.where(~self._columns["warmup"])

    @classmethod
    def concat(cls, tables: Sequence[SampleTable]) -> SampleTable:
        """Return all rows of some tables. Raises `ValueError` for none, or for different origins."""
        origins = {table.origin for table in tables}
        if len(origins) != 1:
            raise ValueError(f"tables of one origin are needed, not of {sorted(origins) or 'none'}")
        first = tables[0]
        return cls(
            {name: np.concatenate([table.column(name) for table in tables]) for name in first.columns},
            first.origin,
        )

    def samples(self) -> Iterator[Sample]:
        """Yield each row as a sample."""
        for row in range(len(self)):
            fields: dict[str, Any] = {name: str(self._columns[name][row]) for name in _TEXT}
            for name in ("served_by", "token_source", "finish_reason"):
                fields[name] = fields[name] or None
            fields["outcome"] = Outcome(fields["outcome"])
            for name in _NUMBERS:
                value = self._columns[name][row]
                fields[name] = None if np.isnan(value) else int(value)
            yield Sample(
                **fields,
                detail=str(self._columns["detail"][row]),
                warnings=tuple(self._columns["warnings"][row]),
                token_ns=tuple(self._columns["token_ns"][row].tolist()),
                scheduled_ns=int(self._columns["scheduled_ns"][row]),
                look=int(self._columns["look"][row]),
                warmup=bool(self._columns["warmup"][row]),
            )

    def write(self, path: Path) -> None:
        """Write Parquet: Sample's fields with nulls, derived columns beside them, the origin as metadata."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays: dict[str, Any] = {}
        for name, column in self._columns.items():
            if name in _NUMBERS:
                missing = np.isnan(column)
                arrays[name] = pa.array(np.where(missing, 0, column).astype(np.int64), mask=missing)
            elif name in _DERIVED:
                arrays[name] = pa.array(column, from_pandas=True)
            elif name in ("token_ns", "warnings"):
                kind = pa.list_(pa.int64() if name == "token_ns" else pa.string())
                arrays[name] = pa.array([list(value) for value in column], type=kind)
            elif name in ("scheduled_ns", "look", "warmup", "burst"):
                arrays[name] = pa.array(column)
            else:
                arrays[name] = pa.array([value or None for value in column.tolist()], type=pa.string())
        table = pa.table(arrays).replace_schema_metadata({"rackgate.origin": str(self.origin)})
        pq.write_table(table, path, compression="zstd")

    @classmethod
    def read(cls, path: Path) -> SampleTable:
        """Return the table of a file that `write` made; derived columns are computed anew."""
        import pyarrow.parquet as pq

        table = pq.ParquetFile(path).read()
        origin = Origin((table.schema.metadata or {})[b"rackgate.origin"].decode())
        rows = table.drop_columns([*_DERIVED, "burst"]).to_pylist()
        return cls.from_samples([_sample(row) for row in rows], origin)


def _sample(row: dict[str, Any]) -> Sample:
    row["outcome"] = Outcome(row["outcome"])
    row["token_ns"] = tuple(row["token_ns"])
    row["warnings"] = tuple(row["warnings"])
    for name in ("detail", "text_digest"):
        row[name] = row[name] or ""
    return Sample(**row)


def _objects(values: Iterable[Any]) -> Column:
    items = list(values)
    column = np.empty(len(items), dtype=object)
    for row, item in enumerate(items):
        column[row] = item
    return column


def _floats(values: Iterable[float | None]) -> Column:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
