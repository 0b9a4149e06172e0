"""What happened during a load: cut clocks, XIDs, kernel events, queues, lost links, leaks, our faults."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rackgate.nouns.fault import FaultTimeline
from rackgate.telemetry.cards.clock_events import CLOCK_EVENTS
from rackgate.telemetry.table import Series, TelemetryTable

if TYPE_CHECKING:
    import numpy.typing as npt


_CLOCK_BITS = {
    bit: name
    for bit, name in CLOCK_EVENTS.items()
    if name not in ("gpu_idle", "sync_boost", "display_clocks")
}
_COUNTERS = {
    "pcie_replays": "PCIe replays",
    "nvlink_crc_errors": "NVLink CRC errors",
    "nvlink_replays": "NVLink replays",
    "nvlink_recoveries": "NVLink recoveries",
    "nvlink_symbol_errors": "NVLink symbol errors",
    "ecc_volatile_uncorrectable": "uncorrectable memory errors",
    "ecc_volatile_correctable": "correctable memory errors",
    "preemptions": "preemptions",
    "network_errors": "network errors",
    "infiniband_errors": "InfiniBand errors",
}
_LOST = {
    "network_links_down": ("link", 1, "network links down"),
    "infiniband_ports_down": ("link", 1, "InfiniBand ports down"),
    "nvlinks_up": ("link", -1, "NVLinks down"),
    "power_supplies_bad": ("power", 1, "power supplies bad"),
}
"""Fields that stand still while all is well: kind, sign of what is worse, words for what is lost."""
_POINT_NS = 1_000_000_000
_QUEUE_FACTOR = 2.0
_STANDS_S = 7.0  # an unchanged value of a slow field is kept every 5 s
_SHOWN = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something that lasted from `start_ns` to `end_ns` (monotonic) at an entity."""

    kind: str
    entity: str
    text: str
    start_ns: int
    end_ns: int


def happenings_of(
    telemetry: TelemetryTable, faults: Iterable[FaultTimeline] = (), *, gap_limit_s: float = 3.0
) -> tuple[Happening, ...]:
    """Return what the telemetry shows, in no order.

    That is throttling, XIDs, kernel events, growing queues and error counters, links and power supplies that
    were lost, leaks, missing telemetry, and our own faults.
    """
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
            if field in _LOST:
                found += _lost(telemetry.series(entity, field), entity, field)
            if field in ("xid", "sxid", "kernel_event"):
                found += _events(telemetry, entity, field)
        if "leak_detectors_wet" in fields:
            found += _leaks(telemetry.series(entity, "leak_detectors_wet"), entity)
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


def _lost(series: Series, entity: str, field: str) -> list[Happening]:
    kind, sign, words = _LOST[field]
    there = ~np.isnan(series.values)
    moments, values = series.t_ns[there], sign * series.values[there]
    if not len(values):
        return []
    gone = values - values.min()
    text = f"{gone.max():.0f} {words}"
    return [
        Happening(kind=kind, entity=entity, text=text, start_ns=start, end_ns=end)
        for start, end in _spans(moments, gone > 0, _STANDS_S)
    ]


def _leaks(series: Series, entity: str) -> list[Happening]:
    there = ~np.isnan(series.values)
    spans = _spans(series.t_ns[there], series.values[there] > 0, _STANDS_S)
    return [
        Happening(kind="leak", entity=entity, text="a leak detector was wet", start_ns=start, end_ns=end)
        for start, end in spans
    ]


def _events(telemetry: TelemetryTable, entity: str, field: str) -> list[Happening]:
    series, words = telemetry.series(entity, field), telemetry.details(entity, field)
    named = {"xid": "XID {code:.0f}", "sxid": "SXid {code:.0f}", "kernel_event": "kernel: {text}"}[field]
    return [
        Happening(
            kind="kernel" if field == "kernel_event" else "xid",
            entity=entity,
            text=named.format(code=code, text=text[:_SHOWN]),
            start_ns=int(at_ns),
            end_ns=int(at_ns),
        )
        for at_ns, code, text in zip(series.t_ns, series.values, words, strict=True)
    ]


def _spans(
    moments: npt.NDArray[np.int64], flags: npt.NDArray[np.bool_], gap_limit_s: float
) -> list[tuple[int, int]]:
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
