"""Events during a load: throttling, XIDs, kernel events, queues, lost links, leaks, faults, imbalance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.metrics.requests.chosen import owners
from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.target import GATEWAY
from rackgate.telemetry.cards.clock_events import CLOCK_EVENTS
from rackgate.telemetry.table import Series, TelemetryTable

if TYPE_CHECKING:
    import numpy.typing as npt

    Moments = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]


_THROTTLE_BITS = {
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
_LOST_PARTS = {
    "network_links_down": ("link", 1, "network links down"),
    "infiniband_ports_down": ("link", 1, "InfiniBand ports down"),
    "nvlinks_up": ("link", -1, "NVLinks down"),
    "power_supplies_bad": ("power", 1, "power supplies bad"),
}
"""Fields that are constant on a healthy rack: event kind, sign of a loss, words for what is lost."""

_KERNEL_FIELDS = {
    "xid": ("xid", "XID {code:.0f}"),
    "sxid": ("xid", "SXid {code:.0f}"),
    "kernel_event": ("kernel", "kernel: {text}"),
}
_SECOND_NS = 1_000_000_000
_GAP_LIMIT_S = 3.0
_MISSING_GAP_LIMIT_S = 60.0
_SLOW_FIELD_GAP_LIMIT_S = 7.0  # an unchanged value of a slow field is kept every 5 s
_QUEUE_FACTOR = 2.0
_TEXT_LIMIT = 120

_LEAST_REQUESTS = 20  # fewer requests in a bin show no share
_UNFAIR_FACTOR, _UNFAIR_SIGMAS = 1.5, 3.0
_LEAST_EXPECTED = 5.0  # an engine with no request that was due at least so many was passed over


@dataclass(frozen=True, slots=True, kw_only=True)
class CoOccurringEvent:
    """An event at an entity from `start_ns` to `end_ns` (monotonic)."""

    kind: str
    entity: str
    text: str
    start_ns: int
    end_ns: int


def co_occurring_events(
    telemetry: TelemetryTable, faults: Iterable[FaultTimeline] = ()
) -> tuple[CoOccurringEvent, ...]:
    """Return the events that the telemetry shows and the faults that the run injected, in no order."""
    return (*_telemetry_events(telemetry), *_fault_events(faults))


def _telemetry_events(telemetry: TelemetryTable) -> Iterator[CoOccurringEvent]:
    for entity in telemetry.entities:
        fields = telemetry.fields(entity)
        if "clock_event_reasons" in fields:
            clocks = telemetry.series(entity, "clock_event_reasons")
            yield from _throttling(clocks, entity)
            yield from _missing_telemetry(clocks, entity)
        if "requests_waiting" in fields:
            yield from _queue_growth(telemetry.series(entity, "requests_waiting"), entity)
        for field in fields:
            if field in _COUNTERS:
                yield from _counter_growth(telemetry.series(entity, field), entity, field)
            if field in _LOST_PARTS:
                yield from _lost_parts(telemetry.series(entity, field), entity, field)
            if field in _KERNEL_FIELDS:
                yield from _kernel_events(telemetry, entity, field)
        if "leak_detectors_wet" in fields:
            yield from _leaks(telemetry.series(entity, "leak_detectors_wet"), entity)


def _fault_events(faults: Iterable[FaultTimeline]) -> Iterator[CoOccurringEvent]:
    for fault in faults:
        if fault.injected_ns is not None:
            end_ns = fault.proven_healed_ns or fault.healed_ns or fault.injected_ns + _SECOND_NS
            text = f"our own fault: {fault.kind}"
            yield CoOccurringEvent(
                kind="fault", entity=fault.entity, text=text, start_ns=fault.injected_ns, end_ns=end_ns
            )


def _throttling(clocks: Series, entity: str) -> Iterator[CoOccurringEvent]:
    moments, values = _present(clocks)
    masks = values.astype(np.int64)
    for bit, name in _THROTTLE_BITS.items():
        yield from _spans("throttle", entity, name, moments, (masks & bit) != 0, _GAP_LIMIT_S)


def _missing_telemetry(clocks: Series, entity: str) -> Iterator[CoOccurringEvent]:
    text = f"no telemetry: {clocks.why_missing[1]}"
    missing = np.isnan(clocks.values)
    yield from _spans("silence", entity, text, clocks.t_ns, missing, _MISSING_GAP_LIMIT_S)


def _queue_growth(series: Series, entity: str) -> Iterator[CoOccurringEvent]:
    moments, waiting = _present(series)
    if len(waiting):
        grown = waiting > _QUEUE_FACTOR * max(1.0, float(np.median(waiting)))
        text = f"queue grew to {waiting.max():.0f} requests"
        yield from _spans("queue", entity, text, moments, grown, _GAP_LIMIT_S)


def _counter_growth(series: Series, entity: str, field: str) -> Iterator[CoOccurringEvent]:
    moments, values = _present(series)
    steps = np.diff(values)
    for index in np.flatnonzero(steps > 0):
        yield CoOccurringEvent(
            kind="errors",
            entity=entity,
            text=f"{steps[index]:.0f} {_COUNTERS[field]}",
            start_ns=int(moments[index]),
            end_ns=int(moments[index + 1]),
        )


def _lost_parts(series: Series, entity: str, field: str) -> Iterator[CoOccurringEvent]:
    kind, sign, words = _LOST_PARTS[field]
    moments, values = _present(series)
    if len(values):
        lost = sign * values - (sign * values).min()
        text = f"{lost.max():.0f} {words}"
        yield from _spans(kind, entity, text, moments, lost > 0, _SLOW_FIELD_GAP_LIMIT_S)


def _leaks(series: Series, entity: str) -> Iterator[CoOccurringEvent]:
    moments, wet = _present(series)
    yield from _spans("leak", entity, "a leak detector was wet", moments, wet > 0, _SLOW_FIELD_GAP_LIMIT_S)


def _kernel_events(telemetry: TelemetryTable, entity: str, field: str) -> Iterator[CoOccurringEvent]:
    kind, template = _KERNEL_FIELDS[field]
    series, details = telemetry.series(entity, field), telemetry.details(entity, field)
    for at_ns, code, detail in zip(series.t_ns, series.values, details, strict=True):
        text = template.format(code=code, text=detail[:_TEXT_LIMIT])
        yield CoOccurringEvent(kind=kind, entity=entity, text=text, start_ns=int(at_ns), end_ns=int(at_ns))


def _present(series: Series) -> tuple[Moments, npt.NDArray[np.float64]]:
    present = ~np.isnan(series.values)
    return series.t_ns[present], series.values[present]


def _spans(
    kind: str, entity: str, text: str, moments: Moments, flags: Flags, gap_limit_s: float
) -> Iterator[CoOccurringEvent]:
    """Yield one event for each stretch of flagged samples.

    A sample holds until the next one, but for `gap_limit_s` at most; the last sample holds for a second.
    """
    spans: list[tuple[int, int]] = []
    for index in np.flatnonzero(flags):
        start = int(moments[index])
        end = int(moments[index + 1]) if index + 1 < len(moments) else start + _SECOND_NS
        end = min(end, start + round(gap_limit_s * 1e9))
        if spans and spans[-1][1] >= start:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    for start, end in spans:
        yield CoOccurringEvent(kind=kind, entity=entity, text=text, start_ns=start, end_ns=end)


def gateway_imbalance(samples: SampleTable, engines: Sequence[str]) -> Iterator[CoOccurringEvent]:
    """Yield the seconds in which a gateway sent an engine far more than its fair share, or no request.

    Only requests through the gateway whose answering engine is known count. A second with fewer than 20 of
    them is counted together with the seconds around it. A single engine has no imbalance.
    """
    through = samples.labels("engine").isin((GATEWAY,)) & owners(samples).isin(engines)
    if len(engines) < 2 or int(through.sum()) < _LEAST_REQUESTS:
        return
    moments = np.asarray(samples.column("scheduled_ns"), dtype=np.int64)[through]
    owner = owners(samples)[through]
    begin, length_ns = int(moments.min()), max(1, int(np.ptp(moments)))
    width_ns = max(_SECOND_NS, int(_LEAST_REQUESTS * length_ns / len(moments)))
    bins = (moments - begin) // width_ns
    totals = np.bincount(bins)
    fair = 1 / len(engines)
    for engine in engines:
        counts = np.bincount(bins[owner.isin((engine,))], minlength=len(totals))
        for text, flags in _unfair_bins(counts, totals, fair).items():
            for index in np.flatnonzero(flags):
                start = begin + int(index) * width_ns
                yield CoOccurringEvent(
                    kind="imbalance", entity=engine, text=text, start_ns=start, end_ns=start + width_ns
                )


def _unfair_bins(counts: Moments, totals: Moments, fair: float) -> dict[str, Flags]:
    expected = fair * totals
    margin = _UNFAIR_SIGMAS * np.sqrt(totals * fair * (1 - fair))
    unfair = (counts > _UNFAIR_FACTOR * expected) & (counts > expected + margin)
    crowded = unfair & (totals >= _LEAST_REQUESTS)
    share = counts[crowded].sum() / totals[crowded].sum() if crowded.any() else 0.0
    return {
        f"the gateway gave it {share:.0%} of the requests, fair were {fair:.0%}": crowded,
        "the gateway gave it no request": (counts == 0) & (expected >= _LEAST_EXPECTED),
    }
