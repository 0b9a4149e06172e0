"""Telemetry of the cards, reduced to a fixed number of bins however long the run was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackgate_reports.evidence import RunEvidence, Unreadable

FIELDS = ("temperature_c", "power_w", "clock_event_reasons")

THROTTLE_BITS = {0x08: "HW slowdown", 0x20: "SW thermal", 0x40: "HW thermal", 0x80: "power brake"}
"""The clock event bits that count as throttling (mask 0xE8)."""

_COLUMNS = ("t_ns", "entity", "field", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class BinnedSeries:
    """One field of one entity: lowest, highest and mean value of each bin, NaN in a bin without samples.

    `bits` holds the union of the bits in each bin; only for clock event reasons.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    mean: NDArray[np.float64]
    bits: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Series by (entity, field); `problem` says why there are none, or which parts are missing."""

    series: dict[tuple[str, str], BinnedSeries]
    problem: str = ""

    def entities(self, field: str) -> tuple[str, ...]:
        """Names of the entities that have the field, sorted."""
        return tuple(sorted(entity for entity, name in self.series if name == field))


class _Binning:
    """Sums of all bins of all series so far; its size depends on the number of series only."""

    def __init__(self, start_ns: int, stop_ns: int, bins: int) -> None:
        self._start_ns, self._span_ns, self._bins = start_ns, max(1, stop_ns - start_ns), bins
        self._codes: dict[tuple[str, str], int] = {}
        self._low = self._high = self._sum = np.empty(0)
        self._count = self._bits = np.empty(0, np.int64)

    def add(self, batch: Any) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = pa.table(batch)
        entity, field = (table[name].cast(pa.string()) for name in ("entity", "field"))
        wanted = pc.and_(pc.is_in(field, value_set=pa.array(FIELDS)), pc.is_valid(table["value"]))
        table = table.set_column(1, "entity", entity).set_column(2, "field", field).filter(wanted)
        if not len(table):
            return
        entity, field = (table[name].combine_chunks().dictionary_encode() for name in ("entity", "field"))
        codes = np.array(
            [
                [self._code(who, what) for what in field.dictionary.to_pylist()]
                for who in entity.dictionary.to_pylist()
            ]
        )
        series = codes[entity.indices.to_numpy(), field.indices.to_numpy()]
        self._take(series, table["t_ns"].to_numpy(), table["value"].to_numpy())

    def _code(self, entity: Any, field: str) -> int:
        return self._codes.setdefault((str(entity), field), len(self._codes))

    def _take(self, series: NDArray[Any], t_ns: NDArray[Any], value: NDArray[Any]) -> None:
        self._grow(len(self._codes) * self._bins)
        place = ((t_ns - self._start_ns) * self._bins / self._span_ns).astype(np.int64)
        fits = (place >= 0) & (place <= self._bins) & np.isfinite(value)
        slot = (series * self._bins + np.minimum(place, self._bins - 1))[fits]
        value = value[fits].astype(np.float64)
        np.minimum.at(self._low, slot, value)
        np.maximum.at(self._high, slot, value)
        self._sum += np.bincount(slot, value, len(self._sum))
        self._count += np.bincount(slot, minlength=len(self._sum))
        np.bitwise_or.at(self._bits, slot, np.clip(value, 0, 2**53).astype(np.int64))

    def _grow(self, size: int) -> None:
        more = size - len(self._sum)
        if more > 0:
            self._low = np.concatenate([self._low, np.full(more, np.inf)])
            self._high = np.concatenate([self._high, np.full(more, -np.inf)])
            self._sum = np.concatenate([self._sum, np.zeros(more)])
            self._count = np.concatenate([self._count, np.zeros(more, np.int64)])
            self._bits = np.concatenate([self._bits, np.zeros(more, np.int64)])

    def result(self) -> dict[tuple[str, str], BinnedSeries]:
        found: dict[tuple[str, str], BinnedSeries] = {}
        for key, code in self._codes.items():
            own = slice(code * self._bins, (code + 1) * self._bins)
            none = self._count[own] == 0
            if none.all():
                continue
            found[key] = BinnedSeries(
                low=np.where(none, np.nan, self._low[own]),
                high=np.where(none, np.nan, self._high[own]),
                mean=np.where(none, np.nan, self._sum[own] / np.maximum(1, self._count[own])),
                bits=self._bits[own],
            )
        return found


def read_telemetry(run: RunEvidence, start_ns: int, stop_ns: int, bins: int) -> Telemetry:
    """Reduce the telemetry between two timestamps to `bins` bins; holds one batch at a time in memory."""
    binning = _Binning(start_ns, stop_ns, bins)
    problems = list(run.telemetry_problems())
    try:
        for batch in run.telemetry(_COLUMNS):
            binning.add(batch)
    except Unreadable as error:
        problems.append(str(error))
    except (KeyError, ValueError, TypeError) as error:
        problems.append(f"the telemetry does not have the columns of telemetry: {error}")
    return Telemetry(series=binning.result(), problem="; ".join(dict.fromkeys(problems)))
