"""Readings as columns, to compute with and to keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rackgate.nouns.measurement import Reason
from rackgate.telemetry.reading import FAST, FIELDS, Reading

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa


_WORDS = ("node", "entity", "field", "unit", "reason", "detail")
_STAYS = ("detail",)  # not part of the published columns of old files


@dataclass(frozen=True, slots=True)
class Series:
    """One signal of one entity: moments (ns) and values; NaN where there was none."""

    t_ns: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    reasons: tuple[tuple[Reason, str], ...]

    @property
    def why_missing(self) -> tuple[Reason, str]:
        """The most frequent reason for missing values; ABSENT if nothing was ever read."""
        counted = Counter(self.reasons).most_common(1)
        return counted[0][0] if counted else (Reason.ABSENT, "never sampled in this window")

    @property
    def present(self) -> npt.NDArray[np.float64]:
        """The values that are there."""
        return self.values[~np.isnan(self.values)]


class TelemetryTable:
    """All readings of a window, as Arrow columns: some 30 bytes each, read from disk as they are."""

    def __init__(self, columns: pa.Table) -> None:
        self._columns = columns
        self._rows: dict[tuple[str, str], npt.NDArray[np.int64]] | None = None

    @classmethod
    def from_readings(cls, readings: Iterable[Reading]) -> TelemetryTable:
        """Return a table of the readings, in their order."""
        import pyarrow as pa

        rows = tuple(readings)
        texts = {
            "node": [one.node for one in rows],
            "entity": [one.entity for one in rows],
            "field": [one.field for one in rows],
            "unit": [FIELDS.get(one.field, "") for one in rows],
            "reason": [None if one.reason is None else str(one.reason) for one in rows],
            "detail": [one.detail or None for one in rows],
        }
        return cls(
            pa.table(
                {
                    "t_ns": pa.array([one.t_ns for one in rows], pa.int64()),
                    **{
                        name: pa.array(texts[name], pa.string()).dictionary_encode()
                        for name in ("node", "entity", "field")
                    },
                    "value": pa.array([one.value for one in rows], pa.float64()),
                    **{
                        name: pa.array(texts[name], pa.string()).dictionary_encode()
                        for name in ("unit", "reason", "detail")
                    },
                }
            )
        )

    @classmethod
    def concat(cls, tables: Sequence[TelemetryTable]) -> TelemetryTable:
        """Return the rows of all tables, one after the other."""
        import pyarrow as pa

        if not tables:
            return cls.from_readings(())
        columns = [one._columns for one in tables]  # noqa: SLF001 - of this very class
        return cls(pa.concat_tables(columns, promote_options="default"))

    def window(self, back_ns: int, begin_ns: int, end_ns: int) -> TelemetryTable:
        """Return the readings from `begin_ns` to `end_ns`, those of slow fields from `back_ns` on."""
        import pyarrow as pa
        import pyarrow.compute as pc

        moments = self._columns["t_ns"]
        fast = pc.is_in(self._columns["field"].cast(pa.string()), value_set=pa.array(sorted(FAST)))
        begins = pc.if_else(fast, pa.scalar(begin_ns, pa.int64()), pa.scalar(back_ns, pa.int64()))
        inside = pc.and_(pc.greater_equal(moments, begins), pc.less_equal(moments, end_ns))
        return TelemetryTable(self._columns.filter(inside))

    def __len__(self) -> int:
        return int(self._columns.num_rows)

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Every reading, in the table's order."""
        return tuple(self._readings(range(len(self))))

    @property
    def entities(self) -> tuple[str, ...]:
        """Every entity that has a reading, by name."""
        return tuple(sorted({entity for entity, _ in self._index()}))

    def fields(self, entity: str) -> tuple[str, ...]:
        """Return every field that the entity has a reading of, by name."""
        return tuple(sorted(field for owner, field in self._index() if owner == entity))

    def series(self, entity: str, field: str) -> Series:
        """Return one signal of one entity; empty if it was never sampled."""
        rows = self._index().get((entity, field), np.zeros(0, dtype=np.int64))
        chosen = self._columns.take(rows)
        pairs = zip(chosen["reason"].to_pylist(), chosen["detail"].to_pylist(), strict=True)
        return Series(
            t_ns=np.asarray(chosen["t_ns"].to_numpy(), dtype=np.int64),
            values=np.asarray(chosen["value"].to_numpy(), dtype=np.float64),
            reasons=tuple((Reason(reason), detail or "") for reason, detail in pairs if reason is not None),
        )

    def details(self, entity: str, field: str) -> tuple[str, ...]:
        """Return the words beside each reading of a signal, in the order of `series`."""
        rows = self._index().get((entity, field), np.zeros(0, dtype=np.int64))
        return tuple(detail or "" for detail in self._columns["detail"].take(rows).to_pylist())

    def latest(self, entity: str) -> dict[str, Reading]:
        """Return the last reading of each field of an entity."""
        return {
            field: next(iter(self._readings([int(rows[-1])])))
            for (owner, field), rows in self._index().items()
            if owner == entity
        }

    def write(self, path: Path) -> None:
        """Write a Parquet file with the columns t_ns, node, entity, field, value, unit, reason, detail."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        plain = self._columns
        for number, name in enumerate(plain.column_names):
            if name in _WORDS:
                plain = plain.set_column(number, name, plain[name].cast(pa.string()))
        pq.write_table(plain, path, compression="zstd")

    @classmethod
    def read(cls, path: Path, fields: frozenset[str] | None = None) -> TelemetryTable:
        """Return the readings of a file that `write` wrote, of some fields alone if they are given."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        chosen = None if fields is None else [("field", "in", sorted(fields))]
        columns = pq.read_table(path, read_dictionary=list(_WORDS), filters=chosen)
        for name in _STAYS:
            if name not in columns.column_names:
                empty = pa.array([None] * columns.num_rows, pa.string()).dictionary_encode()
                columns = columns.append_column(name, empty)
        return cls(columns)

    def _index(self) -> dict[tuple[str, str], npt.NDArray[np.int64]]:
        """Return the rows of each signal, by time."""
        if self._rows is None:
            self._rows = _rows_by_signal(self._columns)
        return self._rows

    def _readings(self, rows: Iterable[int]) -> Iterator[Reading]:
        for row in self._columns.take(list(rows)).to_pylist():
            reason = None if row["reason"] is None else Reason(row["reason"])
            detail = row["detail"] or ""
            yield Reading(row["t_ns"], row["node"], row["entity"], row["field"], row["value"], reason, detail)


def _rows_by_signal(columns: Any) -> dict[tuple[str, str], npt.NDArray[np.int64]]:
    import pyarrow as pa

    if not columns.num_rows:
        return {}
    entities, fields = (
        columns[name].cast(pa.string()).combine_chunks().dictionary_encode() for name in ("entity", "field")
    )
    names, kinds = entities.dictionary.to_pylist(), fields.dictionary.to_pylist()
    codes = entities.indices.to_numpy().astype(np.int64) * len(kinds) + fields.indices.to_numpy()
    order = np.lexsort((columns["t_ns"].to_numpy(), codes))
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    return {
        (names[int(codes[rows[0]]) // len(kinds)], kinds[int(codes[rows[0]]) % len(kinds)]): rows
        for rows in np.split(order, edges)
    }
