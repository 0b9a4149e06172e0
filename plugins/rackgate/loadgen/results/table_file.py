"""Samples in a Parquet file: written a row group at a time, read a column at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rackgate.loadgen.results.columns import (
    COUNTS,
    DERIVED,
    KEPT,
    LABELS,
    MOMENTS,
    TEXTS,
    TRACEPARENT,
    Column,
    Columns,
    objects,
)  # fmt: skip
from rackgate.loadgen.results.labels import Labels
from rackgate.loadgen.results.table import SampleTable
from rackgate.nouns.load import Origin
from rackgate.nouns.sample import Sample

ROWS_AT_ONCE = 1 << 16
_ORIGIN = "rackgate.origin"
_LISTS = {"token_ns": pa.list_(pa.int64()), "warnings": pa.list_(pa.string())}
_SCHEMA = pa.schema(
    [
        *((name, _LISTS.get(name, pa.string())) for name in TEXTS),
        *((name, pa.string()) for name in LABELS),
        ("scheduled_ns", pa.int64()),
        ("look", pa.int64()),
        ("warmup", pa.bool_()),
        ("burst", pa.bool_()),
        *((name, pa.int64()) for name in (*MOMENTS, *COUNTS)),
        *((name, pa.float64()) for name in DERIVED),
        (TRACEPARENT, pa.string()),
    ]
)


class Writer:
    """Writes tables one after the other into one file. The last one's end is the file's."""

    def __init__(self, path: Path, origin: Origin) -> None:
        schema = _SCHEMA.with_metadata({_ORIGIN: str(origin)})
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def add(self, table: SampleTable) -> None:
        """Write the rows of a table as one row group."""
        arrays = [_array(table, field.name, field.type) for field in _SCHEMA]
        self._writer.write_table(pa.table(arrays, schema=self._writer.schema))


def _array(table: SampleTable, name: str, kind: Any) -> Any:
    if name in LABELS:
        labels = table.labels(name)
        names = pa.array([text or None for text in labels.names] or [None], type=kind)
        return names.take(pa.array(labels.codes))
    column = table.column(name)
    if name in _LISTS:
        return pa.array([list(value) for value in column], type=kind)
    if name in (*TEXTS, TRACEPARENT):
        return pa.array([text or None for text in column.tolist()], type=kind)
    if name in (*MOMENTS, *COUNTS):
        missing = np.isnan(column)
        return pa.array(np.where(missing, 0, column).astype(np.int64), mask=missing)
    return pa.array(column, type=kind, from_pandas=name in DERIVED)


def _read_origin(path: Path) -> Origin:
    """Return the moment from which a file's latencies are counted. Raises `KeyError` if it does not say."""
    return Origin((pq.read_schema(path).metadata or {})[_ORIGIN.encode()].decode())


def _column_reader(path: Path) -> Callable[[str], Column | Labels]:
    """Return a function that reads one of the columns that are kept in memory."""
    missing = set(KEPT) - set(pq.read_schema(path).names)
    if missing:
        raise KeyError(f"{path.name} has no {', '.join(sorted(missing))}")

    def read(name: str) -> Column | Labels:
        with pq.ParquetFile(path, read_dictionary=[name] if name in LABELS else None) as file:
            column = file.read(columns=[name]).column(0)
        if name in LABELS:
            return _labels(column)
        kind = np.dtype(_KINDS.get(name, np.float64))
        parts = [chunk.to_numpy(zero_copy_only=False).astype(kind) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)

    return read


_KINDS: dict[str, Any] = {
    "scheduled_ns": np.int64, "look": np.int16, "warmup": np.bool_, "burst": np.bool_,
    **dict.fromkeys((*COUNTS, "tokens_per_chunk", "chunks", "shared_chunks"), np.float32),
}  # fmt: skip


def _labels(column: Any) -> Labels:
    """Return a column of texts that Arrow holds as a dictionary; null is the empty text."""
    parts = []
    for chunk in column.chunks:
        names = [text or "" for text in chunk.dictionary.to_pylist()]
        codes = chunk.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
        parts.append(Labels(codes.astype(np.int32), (*names, "")))
    return Labels.joined(parts)


def _read_arrivals(path: Path) -> Iterator[tuple[Column, Column, Column]]:
    """Yield the arrivals of the chunks of a row group's answers, how many each has, and its row."""
    first = 0
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            for part in file.read_row_group(group, columns=["token_ns"]).column(0).chunks:
                counts = np.asarray(pc.list_value_length(part).fill_null(0))
                yield part.flatten().to_numpy(), counts, np.arange(first, first + len(counts))
                first += len(counts)


def _text_reader(path: Path) -> Callable[[str], Column]:
    """Return a function that reads one of the columns that are not kept in memory."""

    def read(name: str) -> Column:
        with pq.ParquetFile(path) as file:
            column = file.read(columns=[name]).column(0)
        if name == "token_ns":
            return objects([np.array(value, dtype=np.int64) for value in column.to_pylist()])
        if name == "warnings":
            return objects([tuple(value or ()) for value in column.to_pylist()])
        if name == "detail":
            return objects([value or "" for value in column.to_pylist()])
        return np.array([value or "" for value in column.to_pylist()], dtype=np.str_)

    return read


def write_samples(table: SampleTable, path: Path) -> None:
    """Write Parquet: Sample's fields with nulls, derived columns beside them, the origin as metadata."""
    with Writer(path, table.origin) as writer:
        for start in range(0, max(len(table), 1), ROWS_AT_ONCE):
            writer.add(table.where(np.arange(start, min(start + ROWS_AT_ONCE, len(table)))))


def read_samples(path: Path) -> SampleTable:
    """Return the table of a file; its columns are read when they are asked for."""
    return SampleTable(
        Columns(_column_reader(path)), _read_origin(path), _text_reader(path), lambda: _read_arrivals(path)
    )


def samples_to_file(samples: Iterable[Sample], origin: Origin, path: Path) -> SampleTable:
    """Write what workers have spooled into one file and return its table.

    No more than one row group of whole samples is in memory at a time, and nothing of them afterwards: the
    table reads its columns when they are asked for. Raises `OSError`, and `ValueError`, `TypeError` or
    `KeyError` for a line that is no sample.
    """
    samples = iter(samples)
    written = 0
    with Writer(path, origin) as writer:
        while (batch := list(islice(samples, ROWS_AT_ONCE))) or not written:
            writer.add(SampleTable.from_samples(batch, origin))
            written += 1
            batch.clear()  # before the next ones are read
    return read_samples(path)
