"""The Parquet file of samples: written by row group, read by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rackgate.loadgen.results.columns import (
    CACHED,
    COUNTS,
    DERIVED,
    DICTIONARY,
    DTYPES,
    MOMENTS,
    TRACEPARENT,
    UNCACHED,
    Column,
    LazyColumns,  # fmt: skip
    object_column,
)
from rackgate.loadgen.results.dictionary_column import DictionaryColumn
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.nouns.load import Origin
from rackgate.nouns.sample import Sample

ROWS_PER_GROUP = 1 << 16
_ORIGIN = "rackgate.origin"
_LISTS = {"token_ns": pa.list_(pa.int64()), "warnings": pa.list_(pa.string())}
_SCHEMA = pa.schema(
    [
        *((name, _LISTS.get(name, pa.string())) for name in UNCACHED),
        *((name, pa.string()) for name in DICTIONARY),
        ("scheduled_ns", pa.int64()),
        ("look", pa.int64()),
        ("warmup", pa.bool_()),
        ("burst", pa.bool_()),
        *((name, pa.int64()) for name in (*MOMENTS, *COUNTS)),
        *((name, pa.float64()) for name in DERIVED),
        (TRACEPARENT, pa.string()),
    ]
)


def create_sample_file(path: Path, origin: Origin) -> pq.ParquetWriter:
    """Return the writer of a new file, a context manager that completes the file."""
    schema = _SCHEMA.with_metadata({_ORIGIN: str(origin)})
    return pq.ParquetWriter(path, schema, compression="zstd")


def write_row_group(writer: pq.ParquetWriter, table: SampleTable) -> None:
    """Write a table as one row group."""
    arrays = [_array(table, field.name, field.type) for field in _SCHEMA]
    writer.write_table(pa.table(arrays, schema=writer.schema))


def _array(table: SampleTable, name: str, kind: Any) -> Any:
    if name in DICTIONARY:
        labels = table.labels(name)
        names = pa.array([text or None for text in labels.names] or [None], type=kind)
        return names.take(pa.array(labels.codes))
    column = table.column(name)
    if name in _LISTS:
        return pa.array([list(value) for value in column], type=kind)
    if name in (*UNCACHED, TRACEPARENT):
        return pa.array([text or None for text in column.tolist()], type=kind)
    if name in (*MOMENTS, *COUNTS):
        missing = np.isnan(column)
        return pa.array(np.where(missing, 0, column).astype(np.int64), mask=missing)
    return pa.array(column, type=kind, from_pandas=name in DERIVED)


def _read_origin(path: Path) -> Origin:
    """Return the origin of a file's latencies. Raises `KeyError` if it has none."""
    return Origin((pq.read_schema(path).metadata or {})[_ORIGIN.encode()].decode())


def _cached_reader(path: Path) -> Callable[[str], Column | DictionaryColumn]:
    """Return a function that reads a cached column. Raises `KeyError` if the file lacks one."""
    missing = set(CACHED) - set(pq.read_schema(path).names)
    if missing:
        raise KeyError(f"{path.name} has no {', '.join(sorted(missing))}")

    def read(name: str) -> Column | DictionaryColumn:
        with pq.ParquetFile(path, read_dictionary=[name] if name in DICTIONARY else None) as file:
            column = file.read(columns=[name]).column(0)
        if name in DICTIONARY:
            return _dictionary_column(column)
        kind = np.dtype(DTYPES[name])
        parts = [chunk.to_numpy(zero_copy_only=False).astype(kind) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)

    return read


def _dictionary_column(column: Any) -> DictionaryColumn:
    """Return a dictionary-encoded Arrow column; null becomes the empty string."""
    parts = []
    for chunk in column.chunks:
        names = [text or "" for text in chunk.dictionary.to_pylist()]
        codes = chunk.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
        parts.append(DictionaryColumn(codes.astype(np.int32), (*names, "")))
    return DictionaryColumn.concat(parts)


def _read_arrivals(path: Path) -> Iterator[tuple[Column, Column, Column]]:
    """Yield the arrivals of a row group's chunks, the number of chunks of each answer, and its row."""
    first = 0
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            for part in file.read_row_group(group, columns=["token_ns"]).column(0).chunks:
                counts = np.asarray(pc.list_value_length(part).fill_null(0))
                yield part.flatten().to_numpy(), counts, np.arange(first, first + len(counts))
                first += len(counts)


def _uncached_reader(path: Path) -> Callable[[str], Column]:
    """Return a function that reads an uncached column."""

    def read(name: str) -> Column:
        with pq.ParquetFile(path) as file:
            column = file.read(columns=[name]).column(0)
        if name == "token_ns":
            return object_column([np.array(value, dtype=np.int64) for value in column.to_pylist()])
        if name == "warnings":
            return object_column([tuple(value or ()) for value in column.to_pylist()])
        if name == "detail":
            return object_column([value or "" for value in column.to_pylist()])
        return np.array([value or "" for value in column.to_pylist()], dtype=np.str_)

    return read


def write_samples(table: SampleTable, path: Path) -> None:
    """Write a table: the fields of `Sample`, the derived columns, and the origin as metadata."""
    with create_sample_file(path, table.origin) as writer:
        for start in range(0, max(len(table), 1), ROWS_PER_GROUP):
            rows = np.arange(start, min(start + ROWS_PER_GROUP, len(table)))
            write_row_group(writer, table.where(rows))


def read_samples(path: Path) -> SampleTable:
    """Return the table of a file, which reads its columns when they are used."""
    return SampleTable(
        LazyColumns(_cached_reader(path)),
        _read_origin(path),
        _uncached_reader(path),
        lambda: _read_arrivals(path),
    )


def write_sample_file(samples: Iterable[Sample], origin: Origin, path: Path) -> SampleTable:
    """Write samples to a file and return its table, which reads its columns when they are used.

    At most one row group of samples is in memory at a time. Raises `OSError`, and `ValueError`, `TypeError`
    or `KeyError` for an invalid sample.
    """
    samples = iter(samples)
    written = 0
    with create_sample_file(path, origin) as writer:
        while (batch := list(islice(samples, ROWS_PER_GROUP))) or not written:
            write_row_group(writer, SampleTable.from_samples(batch, origin))
            written += 1
            batch.clear()  # frees the samples before the next ones are read
    return read_samples(path)
