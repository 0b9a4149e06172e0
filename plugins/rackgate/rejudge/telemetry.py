"""Telemetry windows of a finished run, from its parts on disk: the same as while it ran."""

from __future__ import annotations

from pathlib import Path

from rackgate.telemetry.reading import FAST, REQUIRED, Reading
from rackgate.telemetry.table import TelemetryTable
from rackgate.telemetry.thinning import REACH_BACK_NS

_SAID_AGAIN_NS = 35_000_000_000
"""A field without a value was said again within this time, while its source answered."""


def telemetry_window(
    folder: Path, start_ns: int, end_ns: int, interval_s: float, seen_ns: int | None = None
) -> TelemetryTable | None:
    """Return all readings between two moments, with one interval of margin; None if nothing was kept.

    What came after `seen_ns` is left out, as it was while the run went on.
    Raises `OSError` or `pyarrow.ArrowException`.
    """
    margin_ns = round(interval_s * 1.5e9)
    begin, end = start_ns - margin_ns, end_ns + margin_ns
    end = end if seen_ns is None else min(end, seen_ns)
    back = begin - max(REACH_BACK_NS, margin_ns)
    paths = [path for path in sorted(folder.glob("*.parquet")) if _overlaps(path, back - _SAID_AGAIN_NS, end)]
    if not paths:
        return None
    table = TelemetryTable.concat([TelemetryTable.read(path) for path in paths])
    until = table.window(0, 0, end)
    before = [one for one in _latest(until) if one.value is None and one.t_ns < back and not _each(one)]
    return TelemetryTable.concat([TelemetryTable.from_readings(before), table.window(back, begin, end)])


def _each(reading: Reading) -> bool:
    """Return whether each sample of the signal was written, whatever it said."""
    return reading.field in FAST and (reading.value is not None or reading.field in REQUIRED)


def _latest(table: TelemetryTable) -> list[Reading]:
    return [reading for entity in table.entities for reading in table.latest(entity).values()]


def _overlaps(path: Path, from_ns: int, until_ns: int) -> bool:
    """Return whether a part holds readings of a stretch."""
    import pyarrow.parquet as pq

    footer = pq.ParquetFile(path).metadata
    column = footer.schema.names.index("t_ns")
    groups = [footer.row_group(number).column(column).statistics for number in range(footer.num_row_groups)]
    known = [one for one in groups if one is not None and one.has_min_max]
    if not known:
        return bool(footer.num_rows)
    low, high = min(one.min for one in known), max(one.max for one in known)
    return bool(low <= until_ns and high >= from_ns)
