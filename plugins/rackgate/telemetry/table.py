"""Readings as columns, to compute with and to keep."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rackgate.measurement import Reason
from rackgate.telemetry.reading import FIELDS, Reading

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["Series", "TelemetryTable"]


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


@dataclass(frozen=True, slots=True)
class TelemetryTable:
    """All readings of a window."""

    readings: tuple[Reading, ...]

    @classmethod
    def from_readings(cls, readings: Iterable[Reading]) -> TelemetryTable:
        """Return a table of the readings, in their order."""
        return cls(tuple(readings))

    def series(self, entity: str, field: str) -> Series:
        """Return one signal of one entity; empty if it was never sampled."""
        chosen = [one for one in self.readings if one.entity == entity and one.field == field]
        return Series(
            t_ns=np.array([one.t_ns for one in chosen], dtype=np.int64),
            values=np.array([np.nan if one.value is None else one.value for one in chosen], dtype=np.float64),
            reasons=tuple((one.reason, one.detail) for one in chosen if one.reason is not None),
        )

    def latest(self, entity: str) -> dict[str, Reading]:
        """Return the last reading of each field of an entity."""
        return {one.field: one for one in self.readings if one.entity == entity}

    def write(self, path: Path) -> None:
        """Write a Parquet file with the columns t_ns, node, entity, field, value, unit, reason."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = self.readings
        columns = {
            "t_ns": pa.array([one.t_ns for one in rows], pa.int64()),
            "node": pa.array([one.node for one in rows], pa.string()),
            "entity": pa.array([one.entity for one in rows], pa.string()),
            "field": pa.array([one.field for one in rows], pa.string()),
            "value": pa.array([one.value for one in rows], pa.float64()),
            "unit": pa.array([FIELDS[one.field] for one in rows], pa.string()),
            "reason": pa.array([one.reason for one in rows], pa.string()),
        }
        pq.write_table(pa.table(columns), path, compression="zstd")

    @classmethod
    def read(cls, path: Path) -> TelemetryTable:
        """Return the readings of a file that `write` wrote."""
        import pyarrow.parquet as pq

        return cls(
            tuple(
                Reading(
                    row["t_ns"],
                    row["node"],
                    row["entity"],
                    row["field"],
                    row["value"],
                    None if row["reason"] is None else Reason(row["reason"]),
                )
                for row in pq.read_table(path).to_pylist()
            )
        )
