"""Findings on a card's signals over a window: throttling, idleness, shares of a limit, peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rackgate.nouns.measurement import Reason, Symptom
from rackgate.telemetry.cards.clock_events import CLOCK_EVENTS, clock_event_names
from rackgate.telemetry.table import Series, TelemetryTable
from rackgate.telemetry.window_findings import (
    Finding,
    growth,
    highest,
    no_sample,
    present_samples,
    uncovered,
    window_values,
)

THROTTLE_COUNTERS = ("sw_thermal_slowdown_ns", "hw_thermal_slowdown_ns", "hw_power_brake_ns")
"""Counters of the clock events that are faults; the power cap is none."""

_IDLE = 0x1
_POWER_CAP = 0x4


def throttle_by_counters_s(table: TelemetryTable, card: str, start_ns: int, end_ns: int) -> Finding:
    """Return the time in fault-class clock events by the driver's own counters, in s.

    These see what lies between two samples, and do not mistake one sample for a whole interval.
    """
    found = {name: growth(table.series(card, name), start_ns, end_ns) for name in THROTTLE_COUNTERS}
    lacking = next((one for one in found.values() if one.value is None), None)
    if lacking is not None:
        seen = [one.partial if one.value is None else one.value for one in found.values()]
        known = [one for one in seen if one is not None]
        return replace(lacking, partial=sum(known) / 1e9 if known else None)
    total_s = sum(one.value or 0.0 for one in found.values()) / 1e9
    detail = ", ".join(
        f"{name.removesuffix('_ns')} {(one.value or 0.0) / 1e9:.3f} s"
        for name, one in found.items()
        if one.value
    )
    grown = {name.removesuffix("_ns") for name, one in found.items() if one.value}
    symptoms = _symptoms(sum(bit for bit, name in CLOCK_EVENTS.items() if name in grown), "counted")
    count = min(one.count for one in found.values())
    return Finding(value=total_s, count=count, detail=detail, symptoms=symptoms)


def _symptoms(bits: int, how: str) -> tuple[Symptom, ...]:
    words = f"{', '.join(clock_event_names(bits))} {how} (bits {bits:#x})"
    return (Symptom(key=f"clock:{bits:#x}", seen=words),) if bits else ()


def idle_share(series: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the share of samples in which the card says that it is idle (bit 0x1), 0 to 1."""
    return standing_share(series, start_ns, end_ns, _IDLE)


def standing_share(series: Series, start_ns: int, end_ns: int, bit: int) -> Finding:
    """Return the share of samples in which a clock event's bit stands, 0 to 1."""
    gap = uncovered(series, start_ns, end_ns)
    masks = window_values(series, start_ns, end_ns).astype(np.int64)
    if gap is not None or not len(masks):
        return gap or no_sample(series)
    share = float(((masks & bit) != 0).mean())
    seen = f"{CLOCK_EVENTS[bit]} in {share:.0%} of the samples"
    symptoms = (Symptom(key=f"clock:{bit:#x}", seen=seen),) if share else ()
    return Finding(value=share, count=len(masks), detail=seen, symptoms=symptoms)


def clock_events(series: Series, start_ns: int, end_ns: int) -> tuple[str, ...]:
    """Return the name of each clock event that was seen in the window."""
    return clock_event_names(_bits(series, start_ns, end_ns))


def clock_symptoms(series: Series, start_ns: int, end_ns: int, mask: int) -> tuple[Symptom, ...]:
    """Return the clock events of a mask that were seen in the window, as one symptom; none if none was."""
    return _symptoms(_bits(series, start_ns, end_ns) & mask, "seen")


def _bits(series: Series, start_ns: int, end_ns: int) -> int:
    masks = window_values(series, start_ns, end_ns).astype(np.int64)
    return int(np.bitwise_or.reduce(masks)) if len(masks) else 0


def share_of_limit(power: Series, limit: Series, start_ns: int, end_ns: int) -> Finding:
    """Return mean power / enforced power limit of the window: 0.95 to 1.05 under a full load."""
    watts, known = window_values(power, start_ns, end_ns), limit_of(limit, end_ns)
    gap = uncovered(power, start_ns, end_ns)
    if gap is not None or not len(watts):
        return gap or no_sample(power)
    if known is None:
        return no_sample(limit)
    mean = float(watts.mean())
    return Finding(value=mean / known, count=len(watts), detail=f"{mean:.0f} W of {known:.0f} W")


def peak_share_of_limit(power: Series, limit: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the greatest power of the window / enforced power limit."""
    found, known = highest(power, start_ns, end_ns), limit_of(limit, end_ns)
    seen = found.partial if found.value is None else found.value
    if known is None:
        return no_sample(limit) if seen is not None else found
    if seen is None:
        return found
    detail = found.detail if found.value is None else f"{seen:.0f} W of {known:.0f} W"
    value, partial = (None, seen / known) if found.value is None else (seen / known, None)
    return replace(found, value=value, partial=partial, detail=detail)


def limit_of(limit: Series, end_ns: int) -> float | None:
    """Return the limit that stood at the end of the window, None if none was read."""
    moments, limits = present_samples(limit)
    known = limits[moments <= end_ns]
    return float(known[-1]) if len(known) and known[-1] > 0 else None


def cap_shortfall(
    power: Series, reasons: Series, limit: Series, start_ns: int, end_ns: int, *, least_limit_w: float = 0.0
) -> Finding:
    """Return 1 - mean power / limit where the power cap holds the card back (bit 0x4), at least 0.

    Only samples count whose predecessor has the bit too: the driver's power is a mean, and follows.
    """
    moments, values = present_samples(reasons)
    capped = (values.astype(np.int64) & _POWER_CAP) != 0
    held = np.concatenate(([False], capped[1:] & capped[:-1])) & (moments >= start_ns) & (moments <= end_ns)
    gap = uncovered(reasons, start_ns, end_ns)
    if gap is not None or not len(window_values(reasons, start_ns, end_ns)):
        return gap or no_sample(reasons)
    if not held.any():
        return Finding(value=0.0, count=len(held), detail="its power cap never held it for two samples")
    known, (seen, watts) = limit_of(limit, end_ns), present_samples(power)
    latest = np.searchsorted(seen, moments[held], side="right") - 1
    if known is None or not (latest >= 0).any() or uncovered(power, start_ns, end_ns) is not None:
        return no_sample(limit if known is None else power)
    mean, most = float(watts[latest[latest >= 0]].mean()), max(known, least_limit_w)
    detail = f"{mean:.0f} W of {most:.0f} W in {int(held.sum())} samples in which its power cap holds it"
    return Finding(value=max(0.0, 1 - mean / most), count=int(held.sum()), detail=detail)


def busy_median(series: Series, reasons: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the median of the window's samples in which the card does not say that it is idle (bit 0x1)."""
    busy = _busy(series, reasons, start_ns, end_ns)
    return busy if isinstance(busy, Finding) else Finding(value=float(np.median(busy)), count=len(busy))


def slowest_state(states: Series, reasons: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the slowest performance state (P0 is 0) of the samples in which the card is not idle."""
    busy = _busy(states, reasons, start_ns, end_ns)
    if isinstance(busy, Finding):
        return busy
    slowest = float(busy.max())
    detail = f"P{slowest:.0f} in {int((busy == slowest).sum())} of {len(busy)} samples"
    return Finding(value=slowest, count=len(busy), detail=detail)


def _busy(series: Series, reasons: Series, start_ns: int, end_ns: int) -> np.ndarray | Finding:
    gap, (moments, values) = uncovered(series, start_ns, end_ns), present_samples(series)
    if gap is not None or not len(window_values(series, start_ns, end_ns)):
        return gap or no_sample(series)
    told, masks = present_samples(reasons)
    idle = np.isin(moments, told[(masks.astype(np.int64) & _IDLE) != 0])
    busy: np.ndarray = values[(moments >= start_ns) & (moments <= end_ns) & ~idle]
    if not len(busy):
        return Finding(value=None, reason=Reason.ABSENT, detail="the card is idle in every sample")
    return busy


def deviation_from_peers(values: Mapping[str, float | None]) -> dict[str, Finding]:
    """Return each card's value - median of the others, in the values' unit.

    Fewer than two others with a value say nothing of a card.
    """
    found = {}
    for card, value in values.items():
        others = [other for name, other in values.items() if name != card and other is not None]
        if value is None:
            found[card] = Finding(value=None, reason=Reason.ABSENT, detail="no value of this card")
        elif len(others) < 2:
            text = f"{len(others)} other cards have a value"
            found[card] = Finding(value=None, count=len(others), reason=Reason.TOO_FEW, detail=text)
        else:
            middle = float(np.median(others))
            found[card] = Finding(
                value=value - middle,
                count=len(others) + 1,
                detail=f"{value:g}, the others' median {middle:g}",
            )
    return found
