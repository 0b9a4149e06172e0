"""The samples of a load as columns, one row per request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from rackgate.loadgen.results.columns import (
    CACHED,
    COUNTS,
    DERIVED,
    DICTIONARY,
    MOMENTS,
    TRACEPARENT,
    UNCACHED,
    Column,
    LazyColumns,
    cached_columns,
    derive,
    flatten,
    object_column,
    uncached_columns,
)
from rackgate.loadgen.results.dictionary_column import DictionaryColumn
from rackgate.nouns.load import Origin
from rackgate.nouns.sample import Sample, traceparent_of

ReadColumn: TypeAlias = Callable[[str], Column]
Arrivals: TypeAlias = Callable[[], Iterator[tuple[Column, Column, Column]]]
"""Yields the arrivals of many answers' chunks, the number of chunks of each answer, and its row or -1."""

Cached = TypeVar("Cached")


_COLUMNS = (
    *UNCACHED, TRACEPARENT, *DICTIONARY, "scheduled_ns", "look", "warmup", "burst", *MOMENTS, *COUNTS,
    *DERIVED,
)  # fmt: skip


class SampleTable:
    """A table of samples.

    Columns are `Sample`'s fields and, in ms from the load's origin, `ttft_ms`, `time_to_first_answer_ms`,
    `e2e_ms`; also `ttft_sent_ms` (always from sending), `tpot_ms`, `schedule_lag_ms`, `connect_ms`,
    `tokens_per_chunk`, `chunks` (token-bearing ones), `shared_chunks` (those that arrived in one read with
    another chunk), `traceparent` and `burst`. Numbers that may be missing are float64 with NaN, which never
    leaves the table; missing strings are empty. `tpot_ms` is NaN for a burst, whose chunks were delayed by a
    hop, so that they do not measure the engine.

    At most 130 bytes per row are kept in memory. A table of a file reads each column at its first use, and
    columns of variable size per row (`UNCACHED`) at each use. A selection of rows copies no column.
    """

    def __init__(
        self,
        columns: dict[str, Column | DictionaryColumn],
        origin: Origin,
        uncached: ReadColumn,
        arrivals: Arrivals,
        rows: NDArray[np.int64] | slice | None = None,
    ) -> None:
        self._columns = columns
        self._uncached = uncached
        self._arrivals = arrivals
        self._rows = rows
        self._results: dict[object, Any] = {}
        self.origin = origin

    @classmethod
    def from_samples(cls, samples: Sequence[Sample], origin: Origin) -> SampleTable:
        """Return the table of samples in their order."""
        uncached, rows = uncached_columns(samples), np.arange(len(samples))
        arrivals = lambda: iter([(*flatten(uncached["token_ns"]), rows)])  # noqa: E731
        return cls(cached_columns(samples), origin, uncached.__getitem__, arrivals)

    def __len__(self) -> int:
        if isinstance(self._rows, slice):
            return int(self._rows.stop - self._rows.start)
        return len(self._columns["scheduled_ns"] if self._rows is None else self._rows)

    def __getattr__(self, name: str) -> Column:
        if name not in _COLUMNS:
            raise AttributeError(name)
        return self.column(name)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns."""
        return _COLUMNS

    def column(self, name: str) -> Column:
        """Return one column. Raises `KeyError`."""
        if name in UNCACHED:
            uncached = self._uncached(name)
            return uncached if self._rows is None else uncached[self._rows]
        if name == TRACEPARENT:
            return object_column(traceparent_of(str(request_id)) for request_id in self.column("request_id"))
        if name in DICTIONARY:
            return self.labels(name).texts
        if name in DERIVED and name not in CACHED:
            return derive(name, self._kept, self.origin)
        column: Column = self._kept(name)
        return column.astype(np.float64) if column.dtype == np.float32 else column

    def labels(self, name: str) -> DictionaryColumn:
        """Return a column of repeating strings as it is encoded, which is cheap to compare."""
        labels: DictionaryColumn = self._kept(name)
        return labels

    def _kept(self, name: str) -> Any:
        column = self._columns[name]
        return column if self._rows is None else column[self._rows]

    def _forget(self, name: str) -> None:
        """Drop a column that can be read again, because a concatenated table has it now."""
        if isinstance(self._columns, LazyColumns):
            self._columns.pop(name, None)

    def where(self, rows: Column) -> SampleTable:
        """Return the rows of a mask or of row numbers."""
        if rows.dtype == np.bool_:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        if isinstance(self._rows, slice):
            rows = rows + self._rows.start
        elif self._rows is not None:
            rows = self._rows[rows]
        return SampleTable(self._columns, self.origin, self._uncached, self._arrivals, _as_slice(rows))

    def chunk_gaps_ms(self) -> Iterator[Column]:
        """Yield the gaps between the token-bearing chunks of each answer, in ms, many answers at a time."""
        for moments, counts, rows in self._own_arrivals():
            answer = np.repeat(np.arange(len(counts)), counts)
            same_answer = (answer[1:] == answer[:-1]) & (rows >= 0)[answer[1:]]
            yield (moments[1:] - moments[:-1])[same_answer] / 1e6

    def _own_arrivals(self) -> Iterator[tuple[Column, Column, Column]]:
        """Yield arrivals as `Arrivals` does, with the row numbers of this table."""
        own_rows = np.full(len(self._columns["scheduled_ns"]), -1, dtype=np.int64)
        own_rows[slice(None) if self._rows is None else self._rows] = np.arange(len(self))
        for moments, counts, rows in self._arrivals():
            yield moments, counts, np.where(rows < 0, -1, own_rows[rows])

    @property
    def measured(self) -> SampleTable:
        """All rows but warm-up."""
        return self.once("measured", lambda: self.where(~self._kept("warmup")))

    def once(self, key: object, make: Callable[[], Cached]) -> Cached:
        """Return the result of `make` for this table, cached under `key`."""
        if key not in self._results:
            self._results[key] = make()
        made: Cached = self._results[key]
        return made

    @classmethod
    def concat(cls, tables: Sequence[SampleTable]) -> SampleTable:
        """Return the concatenation of some tables. Raises `ValueError` for none or different origins."""
        origins = {table.origin for table in tables}
        if len(origins) != 1:
            raise ValueError(f"tables of one origin are needed, not of {sorted(origins) or 'none'}")
        if len(tables) == 1:
            return tables[0]

        def join(name: str) -> Column | DictionaryColumn:
            parts = [table._kept(name) for table in tables]  # noqa: SLF001
            for table in tables:
                table._forget(name)  # noqa: SLF001
            return DictionaryColumn.concat(parts) if name in DICTIONARY else np.concatenate(parts)

        def arrivals() -> Iterator[tuple[Column, Column, Column]]:
            first = 0
            for table in tables:
                for moments, counts, rows in table._own_arrivals():  # noqa: SLF001
                    yield moments, counts, np.where(rows < 0, -1, rows + first)
                first += len(table)

        return cls(
            LazyColumns(join),
            tables[0].origin,
            lambda name: np.concatenate([table.column(name) for table in tables]),
            arrivals,
        )


def _as_slice(rows: NDArray[np.int64]) -> NDArray[np.int64] | slice:
    """Return consecutive rows as a slice, which numpy does not copy."""
    if len(rows) and (rows[1:] - rows[:-1] == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
