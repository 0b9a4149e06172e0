"""What a card's signals say over a load: counters that grew, limits, idleness, and who is unlike the others.

Pure functions of series; None with a reason where the samples do not say it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rackgate.measurement import Reason, Symptom
from rackgate.telemetry.clock_events import CLOCK_EVENTS, clock_event_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rackgate.telemetry.table import Series, TelemetryTable

__all__ = [
    "THROTTLE_COUNTERS",
    "Finding",
    "busy_median",
    "cap_shortfall",
    "clock_events",
    "clock_symptoms",
    "codes_that_came",
    "deviation_from_peers",
    "growth",
    "highest",
    "highest_standing",
    "idle_share",
    "least",
    "limit_of",
    "mean_over",
    "most_per_minute",
    "peak_share_of_limit",
    "share_of_limit",
    "standing_share",
    "throttle_by_counters_s",
]

THROTTLE_COUNTERS = ("sw_thermal_slowdown_ns", "hw_thermal_slowdown_ns", "hw_power_brake_ns")
"""Counters of the clock events that are faults; the power cap is none."""

_IDLE = 0x1
_POWER_CAP = 0x4
_MINUTE_NS = 60_000_000_000
_SILENT_NS = 7_000_000_000  # an unchanged value is kept every 5 s


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A value with the number of samples behind it, or the reason why there is none.

    `partial` is what the samples before a gap show: what is over a limit there is over it for good.
    """

    value: float | None
    partial: float | None = None
    count: int = 0
    reason: Reason | None = None
    detail: str = ""
    symptoms: tuple[Symptom, ...] = ()


def growth(series: Series, start_ns: int, end_ns: int) -> Finding:
    """Return counter at the end - counter at the start; a counter that fell was reset and counts anew.

    The start is the last sample at or before the window, else the first inside. With only one of these
    the first sample after the window is the end; one sample alone says nothing.
    """
    _, values = _chosen(series, start_ns, end_ns)
    if not len(values):
        return _missing(series)
    if len(values) < 2 and _uncovered(series, start_ns, end_ns) is None:
        return Finding(value=None, count=1, reason=Reason.TOO_FEW, detail="one sample shows no growth")
    steps = np.diff(values)
    grown = float(_came(values).sum())
    gap = _uncovered(series, start_ns, end_ns)
    if gap is not None:
        return replace(gap, partial=grown)
    resets = int((steps < 0).sum())
    detail = f"{values[0]:g} -> {values[-1]:g}" + (f", {resets} resets" if resets else "")
    return Finding(value=grown, count=len(values), detail=detail)


def _chosen(series: Series, start_ns: int, end_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return moments and values of a counter that tell how it grew in the window."""
    moments, values = _present(series)
    before = np.flatnonzero(moments <= start_ns)
    inside = np.flatnonzero((moments > start_ns) & (moments <= end_ns))
    chosen = np.concatenate((before[-1:], inside))
    if len(chosen) == 1:  # a slow counter's next sample may lie just behind a short load
        chosen = np.concatenate((chosen, np.flatnonzero(moments > end_ns)[:1]))
    return moments[chosen], values[chosen]


def _came(values: np.ndarray) -> np.ndarray:
    """Return what came between each two values of a counter; one that fell was reset and counts anew."""
    steps: np.ndarray = np.diff(values)
    return np.where(steps >= 0, steps, values[1:])


def most_per_minute(series: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the most that a counter grew within any minute; a shorter window counts as one.

    What came between two samples came at the later one; where these are further apart than a minute, it
    came evenly.
    """
    whole = growth(series, start_ns, end_ns)
    moments, values = _chosen(series, start_ns, end_ns)
    came = _came(values) * np.minimum(1.0, _MINUTE_NS / np.maximum(np.diff(moments), 1))
    reached = np.concatenate(([0.0], np.cumsum(came)))
    first = np.searchsorted(moments[1:], moments[1:] - _MINUTE_NS, side="right")
    most = float((reached[1:] - reached[first]).max(initial=0.0))
    if whole.value is None:
        return replace(whole, partial=None if whole.partial is None else most)
    return replace(whole, value=most)


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


def highest(series: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the greatest sample of the window."""
    return _extreme(series, start_ns, end_ns, greatest=True)


def highest_standing(series: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the greatest value of the window, with the one that stood when it began.

    Of a signal that is kept when it changes and now and then, a short window may have no sample.
    """
    moments, values = _present(series)
    before = np.flatnonzero(moments <= start_ns)[-1:]
    inside = np.flatnonzero((moments > start_ns) & (moments <= end_ns))
    chosen = np.concatenate((before, inside))
    gap = _uncovered(series, start_ns, end_ns)
    if gap is not None or not len(chosen):
        return gap or _missing(series)
    return Finding(value=float(values[chosen].max()), count=len(chosen))


def codes_that_came(series: Series, start_ns: int, end_ns: int) -> tuple[tuple[int, int], ...] | Finding:
    """Return (moment in ns, code) of each code to which a gauge of the last one changed in the window.

    Without any, that it was 0 all along as a value; a code that stood may have come again, which such a
    gauge does not show.
    """
    moments, values = _present(series)
    before = np.flatnonzero(moments <= start_ns)[-1:]
    inside = np.flatnonzero((moments > start_ns) & (moments <= end_ns))
    chosen = np.concatenate((before, inside))
    codes = values[chosen].astype(np.int64)
    came = tuple(
        (int(moments[chosen[place + 1]]), int(codes[place + 1]))
        for place in np.flatnonzero(np.diff(codes))
        if codes[place + 1]
    )
    gap = _uncovered(series, start_ns, end_ns)
    if came:
        return came
    if gap is not None or not len(chosen):
        return gap or _missing(series)
    if codes[-1]:
        text = f"the last XID was {codes[-1]} before, and another {codes[-1]} would not show"
        return Finding(value=None, count=len(chosen), reason=Reason.UNSUPPORTED, detail=text)
    return Finding(value=0.0, count=len(chosen))


def least(series: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the least sample of the window: of a margin, the worst."""
    return _extreme(series, start_ns, end_ns, greatest=False)


def idle_share(series: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the share of samples in which the card says that it is idle (bit 0x1), 0 to 1."""
    return standing_share(series, start_ns, end_ns, _IDLE)


def standing_share(series: Series, start_ns: int, end_ns: int, bit: int) -> Finding:
    """Return the share of samples in which a clock event's bit stands, 0 to 1."""
    gap = _uncovered(series, start_ns, end_ns)
    masks = _window(series, start_ns, end_ns).astype(np.int64)
    if gap is not None or not len(masks):
        return gap or _missing(series)
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
    masks = _window(series, start_ns, end_ns).astype(np.int64)
    return int(np.bitwise_or.reduce(masks)) if len(masks) else 0


def share_of_limit(power: Series, limit: Series, start_ns: int, end_ns: int) -> Finding:
    """Return mean power / enforced power limit of the window: 0.95 to 1.05 under a full load."""
    watts, known = _window(power, start_ns, end_ns), limit_of(limit, end_ns)
    gap = _uncovered(power, start_ns, end_ns)
    if gap is not None or not len(watts):
        return gap or _missing(power)
    if known is None:
        return _missing(limit)
    mean = float(watts.mean())
    return Finding(value=mean / known, count=len(watts), detail=f"{mean:.0f} W of {known:.0f} W")


def peak_share_of_limit(power: Series, limit: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the greatest power of the window / enforced power limit."""
    found, known = highest(power, start_ns, end_ns), limit_of(limit, end_ns)
    seen = found.partial if found.value is None else found.value
    if known is None:
        return _missing(limit) if seen is not None else found
    if seen is None:
        return found
    detail = found.detail if found.value is None else f"{seen:.0f} W of {known:.0f} W"
    value, partial = (None, seen / known) if found.value is None else (seen / known, None)
    return replace(found, value=value, partial=partial, detail=detail)


def limit_of(limit: Series, end_ns: int) -> float | None:
    """Return the limit that stood at the end of the window, None if none was read."""
    moments, limits = _present(limit)
    known = limits[moments <= end_ns]
    return float(known[-1]) if len(known) and known[-1] > 0 else None


def cap_shortfall(
    power: Series, reasons: Series, limit: Series, start_ns: int, end_ns: int, *, least_limit_w: float = 0.0
) -> Finding:
    """Return 1 - mean power / limit where the power cap holds the card back (bit 0x4), at least 0.

    Only samples count whose predecessor has the bit too: the driver's power is a mean, and follows.
    """
    moments, values = _present(reasons)
    capped = (values.astype(np.int64) & _POWER_CAP) != 0
    held = np.concatenate(([False], capped[1:] & capped[:-1])) & (moments >= start_ns) & (moments <= end_ns)
    gap = _uncovered(reasons, start_ns, end_ns)
    if gap is not None or not len(_window(reasons, start_ns, end_ns)):
        return gap or _missing(reasons)
    if not held.any():
        return Finding(value=0.0, count=len(held), detail="its power cap never held it for two samples")
    known, (seen, watts) = limit_of(limit, end_ns), _present(power)
    latest = np.searchsorted(seen, moments[held], side="right") - 1
    if known is None or not (latest >= 0).any() or _uncovered(power, start_ns, end_ns) is not None:
        return _missing(limit if known is None else power)
    mean, most = float(watts[latest[latest >= 0]].mean()), max(known, least_limit_w)
    detail = f"{mean:.0f} W of {most:.0f} W in {int(held.sum())} samples in which its power cap holds it"
    return Finding(value=max(0.0, 1 - mean / most), count=int(held.sum()), detail=detail)


def mean_over(series: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the mean of the window's samples."""
    gap, values = _uncovered(series, start_ns, end_ns), _window(series, start_ns, end_ns)
    if gap is not None or not len(values):
        return gap or _missing(series)
    return Finding(value=float(values.mean()), count=len(values))


def busy_median(series: Series, reasons: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the median of the window's samples in which the card does not say that it is idle (bit 0x1)."""
    gap, (moments, values) = _uncovered(series, start_ns, end_ns), _present(series)
    if gap is not None or not len(_window(series, start_ns, end_ns)):
        return gap or _missing(series)
    told, masks = _present(reasons)
    idle = np.isin(moments, told[(masks.astype(np.int64) & _IDLE) != 0])
    busy = values[(moments >= start_ns) & (moments <= end_ns) & ~idle]
    if not len(busy):
        return Finding(value=None, reason=Reason.ABSENT, detail="the card is idle in every sample")
    return Finding(value=float(np.median(busy)), count=len(busy))


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


def _extreme(series: Series, start_ns: int, end_ns: int, *, greatest: bool) -> Finding:
    gap = _uncovered(series, start_ns, end_ns)
    values = _window(series, start_ns, end_ns)
    if not len(values):
        return gap or _missing(series)
    extreme = float(values.max() if greatest else values.min())
    if gap is not None:
        return replace(gap, partial=extreme)
    return Finding(value=extreme, count=len(values))


def _uncovered(series: Series, start_ns: int, end_ns: int) -> Finding | None:
    """Return why the samples do not speak for the window: lost before its end, or too often missing."""
    inside = np.flatnonzero((series.t_ns >= start_ns) & (series.t_ns <= end_ns))
    missing = inside[np.isnan(series.values[inside])]
    if len(inside) and len(missing) and (missing[-1] == inside[-1] or len(missing) > 0.1 * len(inside)):
        reason, detail = series.why_missing
        text = f"{len(missing)} of {len(inside)} samples are missing: {detail}"
        return Finding(value=None, count=len(inside), reason=reason, detail=text)
    moments, _ = _present(series)
    known = moments[moments <= end_ns]
    if len(known) and end_ns - known[-1] > _SILENT_NS:
        text = f"not seen in the last {(end_ns - known[-1]) / 1e9:.0f} s of the load"
        return Finding(value=None, count=len(known), reason=Reason.STALE, detail=text)
    return None


def _window(series: Series, start_ns: int, end_ns: int) -> np.ndarray:
    moments, values = _present(series)
    inside: np.ndarray = values[(moments >= start_ns) & (moments <= end_ns)]
    return inside


def _present(series: Series) -> tuple[np.ndarray, np.ndarray]:
    there = ~np.isnan(series.values)
    order = np.argsort(series.t_ns[there], kind="stable")
    return series.t_ns[there][order], series.values[there][order]


def _missing(series: Series) -> Finding:
    reason, detail = series.why_missing
    return Finding(value=None, reason=reason, detail=detail)
