"""Samples as columns: one row per request, raw and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

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
    columns_of,
    derived,
    flat,
    objects,
    sample_of,
    texts_of,
)
from rackgate.loadgen.results.labels import Labels
from rackgate.nouns.load import Origin
from rackgate.nouns.sample import Sample, traceparent_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Texts: TypeAlias = Callable[[str], Column]
    Arrivals: TypeAlias = Callable[[], Iterator[tuple[Column, Column, Column]]]
    """Yields the arrivals of the chunks of some answers, how many each answer has, and its row or -1."""

Known = TypeVar("Known")


_COLUMNS = (
    *TEXTS, TRACEPARENT, *LABELS, "scheduled_ns", "look", "warmup", "burst", *MOMENTS, *COUNTS, *DERIVED,
)  # fmt: skip


class SampleTable:
    """A columnar view of samples.

    Columns are `Sample`'s fields and, in ms from the load's origin, `ttft_ms`,
    `time_to_first_answer_ms`, `e2e_ms`; also `ttft_sent_ms` (always from sending), `tpot_ms`,
    `schedule_lag_ms`, `connect_ms`, `tokens_per_chunk`, `chunks` (token-bearing ones), `shared_chunks`
    (those that came in one read with another one), `traceparent` and `burst`. Numbers that may be missing
    are float64 with NaN, which never leaves the table; missing texts are empty. `tpot_ms` is NaN for a
    burst, whose chunks a hop has delayed: it is no measurement of the engine.

    At most 130 bytes per row are kept in memory. A table of a file reads its columns when they are asked
    for, and those that are of another size in each row (`TEXTS`) each time; a choice of rows copies none.
    """

    def __init__(
        self,
        columns: dict[str, Column | Labels],
        origin: Origin,
        texts: Texts,
        arrivals: Arrivals,
        rows: NDArray[np.int64] | slice | None = None,
    ) -> None:
        self._columns = columns
        self._texts = texts
        self._arrivals = arrivals
        self._rows = rows
        self._known: dict[object, Any] = {}
        self.origin = origin

    @classmethod
    def from_samples(cls, samples: Sequence[Sample], origin: Origin) -> SampleTable:
        """Return the table of some samples, in their order."""
        texts, rows = texts_of(samples), np.arange(len(samples))
        arrivals = lambda: iter([(*flat(texts["token_ns"]), rows)])  # noqa: E731
        return cls(columns_of(samples), origin, texts.__getitem__, arrivals)

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
        if name in TEXTS:
            texts = self._texts(name)
            return texts if self._rows is None else texts[self._rows]
        if name == TRACEPARENT:
            return objects(traceparent_of(str(request_id)) for request_id in self.column("request_id"))
        if name in LABELS:
            return self.labels(name).texts
        if name in DERIVED and name not in KEPT:
            return derived(name, self._kept, self.origin)
        column: Column = self._kept(name)
        return column.astype(np.float64) if column.dtype == np.float32 else column

    def labels(self, name: str) -> Labels:
        """Return a column of repeating texts in its short form; to compare it costs little."""
        labels: Labels = self._kept(name)
        return labels

    def _kept(self, name: str) -> Any:
        column = self._columns[name]
        return column if self._rows is None else column[self._rows]

    def _let_go(self, name: str) -> None:
        """Forget a column that can be fetched again: whoever joined it has it now."""
        if isinstance(self._columns, Columns):
            self._columns.pop(name, None)

    def where(self, rows: Column) -> SampleTable:
        """Return the rows for which a mask is true, or the rows of these numbers."""
        if rows.dtype == np.bool_:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        if isinstance(self._rows, slice):
            rows = rows + self._rows.start
        elif self._rows is not None:
            rows = self._rows[rows]
        return SampleTable(self._columns, self.origin, self._texts, self._arrivals, _neighbours(rows))

    def chunk_gaps_ms(self) -> Iterator[Column]:
        """Yield the gaps between the token-bearing chunks of these rows' answers, in ms, many at a time."""
        for moments, counts, rows in self._own_arrivals():
            answer = np.repeat(np.arange(len(counts)), counts)
            together = (answer[1:] == answer[:-1]) & (rows >= 0)[answer[1:]]
            yield (moments[1:] - moments[:-1])[together] / 1e6

    def _own_arrivals(self) -> Iterator[tuple[Column, Column, Column]]:
        """Yield arrivals of answers as `Arrivals` does, by the rows of this table."""
        places = np.full(len(self._columns["scheduled_ns"]), -1, dtype=np.int64)
        places[slice(None) if self._rows is None else self._rows] = np.arange(len(self))
        for moments, counts, rows in self._arrivals():
            yield moments, counts, np.where(rows < 0, -1, places[rows])

    @property
    def measured(self) -> SampleTable:
        """The rows that are judged: all but warm-up."""
        return self.once("measured", lambda: self.where(~self._kept("warmup")))

    def once(self, key: object, make: Callable[[], Known]) -> Known:
        """Return what was made of this table under a key, or make it: many checks ask for the same."""
        if key not in self._known:
            self._known[key] = make()
        made: Known = self._known[key]
        return made

    @classmethod
    def concat(cls, tables: Sequence[SampleTable]) -> SampleTable:
        """Return all rows of some tables. Raises `ValueError` for none, or for different origins."""
        origins = {table.origin for table in tables}
        if len(origins) != 1:
            raise ValueError(f"tables of one origin are needed, not of {sorted(origins) or 'none'}")
        if len(tables) == 1:
            return tables[0]

        def join(name: str) -> Column | Labels:
            parts = [table._kept(name) for table in tables]  # noqa: SLF001 - of its own kind
            for table in tables:
                table._let_go(name)  # noqa: SLF001
            return Labels.joined(parts) if name in LABELS else np.concatenate(parts)

        def arrivals() -> Iterator[tuple[Column, Column, Column]]:
            first = 0
            for table in tables:
                for moments, counts, rows in table._own_arrivals():  # noqa: SLF001
                    yield moments, counts, np.where(rows < 0, -1, rows + first)
                first += len(table)

        return cls(
            Columns(join),
            tables[0].origin,
            lambda name: np.concatenate([table.column(name) for table in tables]),
            arrivals,
        )

    def samples(self) -> Iterator[Sample]:
        """Yield each row as a sample."""
        names = (*TEXTS, *LABELS, "scheduled_ns", "look", "warmup", *MOMENTS, *COUNTS)
        for values in zip(*(self.column(name) for name in names), strict=True):
            yield sample_of(dict(zip(names, values, strict=True)))


def _neighbours(rows: NDArray[np.int64]) -> NDArray[np.int64] | slice:
    """Return rows that follow each other as a slice, for which numpy copies nothing."""
    if len(rows) and (rows[1:] - rows[:-1] == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
