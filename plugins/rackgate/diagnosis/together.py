"""What else happened in the seconds in which something failed: seen at the same time, no proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rackgate.fault import FaultTimeline
    from rackgate.telemetry.table import TelemetryTable

__all__ = ["Happening", "SeenTogether", "happenings_of", "seen_at_the_same_time"]

_CLOCK_BITS = {
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
_COUNTERS = {
    "pcie_replays": "PCIe replays",
    "nvlink_crc_errors": "NVLink CRC errors",
    "nvlink_replays": "NVLink replays",
    "nvlink_recoveries": "NVLink recoveries",
    "ecc_volatile_uncorrectable": "uncorrectable memory errors",
    "ecc_volatile_correctable": "correctable memory errors",
    "preemptions": "preemptions",
    "network_errors": "network errors",
    "infiniband_errors": "InfiniBand errors",
}
_POINT_NS = 1_000_000_000
_QUEUE_FACTOR = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something that lasted from `start_ns` to `end_ns` (monotonic) at an entity."""

    kind: str
    entity: str
    text: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTogether:
    """A happening with the time that it shares with the windows asked for, and its share of them."""

    happening: Happening
    overlap_s: float
    share: float

    @property
    def text(self) -> str:
        """One line for a report."""
        happening = self.happening
        return f"seen at the same time: {happening.text} on {happening.entity} ({self.share:.0%} of the time)"


def seen_at_the_same_time(
    windows: Sequence[tuple[int, int]],
    happenings: Iterable[Happening],
    *,
    slack_s: float = 1.0,
    limit: int = 10,
) -> tuple[SeenTogether, ...]:
    """Return what overlaps the windows (ns), the longest overlap first, then the more exact one.

    A happening that is a moment counts as `slack_s` long to each side. What happened several times in the
    same words is said once, with the time of all of them. Of two with the same overlap the one that lasted
    less outside of the windows comes first: it fits them better.
    """
    slack_ns = round(slack_s * 1e9)
    merged = _merged(windows)
    total_ns = sum(end - start for start, end in merged) or 1
    found: dict[tuple[str, str, str], tuple[Happening, int, int]] = {}
    for happening in happenings:
        start, end = happening.start_ns, happening.end_ns
        if end - start < slack_ns:
            middle = (start + end) // 2
            start, end = middle - slack_ns, middle + slack_ns
        overlap_ns = sum(max(0, min(end, stop) - max(start, begin)) for begin, stop in merged)
        if overlap_ns > 0:
            words = (happening.kind, happening.entity, happening.text)
            first, shared_ns, outside_ns = found.get(words, (happening, 0, 0))
            found[words] = (first, shared_ns + overlap_ns, outside_ns + end - start - overlap_ns)
    ranked = sorted(found.items(), key=lambda one: (-one[1][1], one[1][2], one[0]))
    return tuple(
        SeenTogether(happening=happening, overlap_s=overlap_ns / 1e9, share=min(1.0, overlap_ns / total_ns))
        for _, (happening, overlap_ns, _) in ranked[:limit]
    )


def happenings_of(
    telemetry: TelemetryTable, faults: Iterable[FaultTimeline] = (), *, gap_limit_s: float = 3.0
) -> tuple[Happening, ...]:
    """Return throttling, XIDs, growing queues and error counters, missing telemetry and our own faults."""
    found: list[Happening] = []
    for entity in telemetry.entities:
        fields = telemetry.fields(entity)
        if "clock_event_reasons" in fields:
            found += _throttling(telemetry, entity, gap_limit_s)
            found += _silence(telemetry, entity)
        if "requests_waiting" in fields:
            found += _queue(telemetry, entity, gap_limit_s)
        for field in fields:
            if field in _COUNTERS:
                found += _growth(telemetry, entity, field)
            if field in ("xid", "sxid"):
                found += _events(telemetry, entity, field)
    found += [
        Happening(
            kind="fault",
            entity=fault.entity,
            text=f"our own fault: {fault.kind}",
            start_ns=fault.injected_ns,
            end_ns=fault.proven_healed_ns or fault.healed_ns or fault.injected_ns + _POINT_NS,
        )
        for fault in faults
        if fault.injected_ns is not None
    ]
    return tuple(found)


def _throttling(telemetry: TelemetryTable, entity: str, gap_limit_s: float) -> list[Happening]:
    series = telemetry.series(entity, "clock_event_reasons")
    there = ~np.isnan(series.values)
    moments, masks = series.t_ns[there], series.values[there].astype(np.int64)
    return [
        Happening(kind="throttle", entity=entity, text=name, start_ns=start, end_ns=end)
        for bit, name in _CLOCK_BITS.items()
        for start, end in _spans(moments, (masks & bit) != 0, gap_limit_s)
    ]


def _silence(telemetry: TelemetryTable, entity: str) -> list[Happening]:
    series = telemetry.series(entity, "clock_event_reasons")
    spans = _spans(series.t_ns, np.isnan(series.values), 60.0)
    text = f"no telemetry: {series.why_missing[1]}"
    return [
        Happening(kind="silence", entity=entity, text=text, start_ns=start, end_ns=end)
        for start, end in spans
    ]


def _queue(telemetry: TelemetryTable, entity: str, gap_limit_s: float) -> list[Happening]:
    series = telemetry.series(entity, "requests_waiting")
    there = ~np.isnan(series.values)
    moments, waiting = series.t_ns[there], series.values[there]
    if not len(waiting):
        return []
    usual = max(1.0, float(np.median(waiting)))
    text = f"queue grew to {waiting.max():.0f} requests"
    return [
        Happening(
            kind="queue",
            entity=entity,
            text=text,
            start_ns=start,
            end_ns=end,
        )
        for start, end in _spans(moments, waiting > _QUEUE_FACTOR * usual, gap_limit_s)
    ]


def _growth(telemetry: TelemetryTable, entity: str, field: str) -> list[Happening]:
    series = telemetry.series(entity, field)
    there = ~np.isnan(series.values)
    moments, values = series.t_ns[there], series.values[there]
    steps = np.diff(values)
    return [
        Happening(
            kind="errors",
            entity=entity,
            text=f"{steps[place]:.0f} {_COUNTERS[field]}",
            start_ns=int(moments[place]),
            end_ns=int(moments[place + 1]),
        )
        for place in np.flatnonzero(steps > 0)
    ]


def _events(telemetry: TelemetryTable, entity: str, field: str) -> list[Happening]:
    series = telemetry.series(entity, field)
    return [
        Happening(
            kind="xid",
            entity=entity,
            text=f"{'XID' if field == 'xid' else 'SXid'} {code:.0f}",
            start_ns=int(at_ns),
            end_ns=int(at_ns),
        )
        for at_ns, code in zip(series.t_ns, series.values, strict=True)
    ]


def _spans(moments: np.ndarray, flags: np.ndarray, gap_limit_s: float) -> list[tuple[int, int]]:
    """Return the stretches of flagged samples; each holds until the next sample, unless that is far."""
    spans: list[tuple[int, int]] = []
    limit_ns = round(gap_limit_s * 1e9)
    for place in np.flatnonzero(flags):
        start = int(moments[place])
        end = int(moments[place + 1]) if place + 1 < len(moments) else start + _POINT_NS
        end = min(end, start + limit_ns)
        if spans and spans[-1][1] >= start:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


def _merged(windows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
