"""The telemetry of a finished run: the same windows as while it ran, from the parts on disk."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rackgate.telemetry.reading import FAST, REQUIRED
from rackgate.telemetry.table import TelemetryTable
from rackgate.telemetry.thinning import REACH_BACK_NS

if TYPE_CHECKING:
    from pathlib import Path

    from rackgate.telemetry.reading import Reading

__all__ = ["telemetry_window"]

_SAID_AGAIN_NS = 35_000_000_000
"""A signal that stays as it is was written again within this time, while its source answered."""


def telemetry_window(folder: Path, start_ns: int, end_ns: int, interval_s: float) -> TelemetryTable | None:
    """Return all readings between two moments, with one interval of margin; None if nothing was kept.

    A signal that seldom changes was not written at each sample: at the end of the window it stood as it
    was written before, if it was written again later. Raises `OSError` or `pyarrow.ArrowException`.
    """
    margin_ns = round(interval_s * 1.5e9)
    begin, end = start_ns - margin_ns, end_ns + margin_ns
    back = begin - max(REACH_BACK_NS, margin_ns)
    paths = [path for path in sorted(folder.glob("*.parquet")) if _overlaps(path, back - _SAID_AGAIN_NS, end)]
    if not paths:
        return None
    table = TelemetryTable.concat([TelemetryTable.read(path) for path in paths])
    until = table.window(0, 0, end)
    last, ever = _latest(until), _latest(table)
    before = [one for one in last.values() if one.value is None and one.t_ns < back and not _each(one)]
    still = [
        replace(one, t_ns=end)
        for signal, one in last.items()
        if not _each(one) and back <= one.t_ns < end < ever[signal].t_ns
    ]
    return TelemetryTable.concat(
        [
            TelemetryTable.from_readings(before),
            table.window(back, begin, end),
            TelemetryTable.from_readings(still),
        ]
    )


def _each(reading: Reading) -> bool:
    """Return whether each sample of the signal was written, whatever it said."""
    return reading.field in FAST and (reading.value is not None or reading.field in REQUIRED)


def _latest(table: TelemetryTable) -> dict[tuple[str, str], Reading]:
    return {
        (entity, field): reading
        for entity in table.entities
        for field, reading in table.latest(entity).items()
    }


def _overlaps(path: Path, from_ns: int, until_ns: int) -> bool:
    """Return whether a part holds readings of a stretch, or of the time in which signals were said again."""
    import pyarrow.parquet as pq

    footer = pq.ParquetFile(path).metadata
    column = footer.schema.names.index("t_ns")
    groups = [footer.row_group(number).column(column).statistics for number in range(footer.num_row_groups)]
    known = [one for one in groups if one is not None and one.has_min_max]
    if not known:
        return bool(footer.num_rows)
    low, high = min(one.min for one in known), max(one.max for one in known)
    return bool(low <= until_ns + _SAID_AGAIN_NS and high >= from_ns)
