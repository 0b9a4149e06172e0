"""What the samples of a series say over a window, or why they do not: pure functions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rackgate.nouns.measurement import Reason, Symptom
from rackgate.telemetry.table import Series

_MINUTE_NS = 60_000_000_000
_SILENT_NS = 7_000_000_000  # an unchanged value is kept every 5 s
_SOON_NS = 3_000_000_000
"""A source that is asked seldom is asked again when the load has ended: seen so soon, it was not silent."""


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
        return no_sample(series)
    if len(values) < 2 and uncovered(series, start_ns, end_ns) is None:
        return Finding(value=None, count=1, reason=Reason.TOO_FEW, detail="one sample shows no growth")
    steps = np.diff(values)
    grown = float(_came(values).sum())
    gap = uncovered(series, start_ns, end_ns)
    if gap is not None:
        return replace(gap, partial=grown)
    resets = int((steps < 0).sum())
    detail = f"{values[0]:g} -> {values[-1]:g}" + (f", {resets} resets" if resets else "")
    return Finding(value=grown, count=len(values), detail=detail)


def _chosen(series: Series, start_ns: int, end_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return moments and values of a counter that tell how it grew in the window."""
    moments, values = present_samples(series)
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


def highest(series: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the greatest sample of the window."""
    return _extreme(series, start_ns, end_ns, greatest=True)


def highest_standing(series: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the greatest value of the window, with the one that stood when it began.

    Of a signal that is kept when it changes and now and then, a short window may have no sample.
    """
    moments, values = present_samples(series)
    before = np.flatnonzero(moments <= start_ns)[-1:]
    inside = np.flatnonzero((moments > start_ns) & (moments <= end_ns))
    chosen = np.concatenate((before, inside))
    gap = uncovered(series, start_ns, end_ns)
    if gap is not None or not len(chosen):
        return gap or no_sample(series)
    return Finding(value=float(values[chosen].max()), count=len(chosen))


def codes_that_came(series: Series, start_ns: int, end_ns: int) -> tuple[tuple[int, int], ...] | Finding:
    """Return (moment in ns, code) of each code to which a gauge of the last one changed in the window.

    Without any, that it was 0 all along as a value; a code that stood may have come again, which such a
    gauge does not show.
    """
    moments, values = present_samples(series)
    before = np.flatnonzero(moments <= start_ns)[-1:]
    inside = np.flatnonzero((moments > start_ns) & (moments <= end_ns))
    chosen = np.concatenate((before, inside))
    codes = values[chosen].astype(np.int64)
    came = tuple(
        (int(moments[chosen[place + 1]]), int(codes[place + 1]))
        for place in np.flatnonzero(np.diff(codes))
        if codes[place + 1]
    )
    gap = uncovered(series, start_ns, end_ns)
    if came:
        return came
    if gap is not None or not len(chosen):
        return gap or no_sample(series)
    if codes[-1]:
        text = f"the last XID was {codes[-1]} before, and another {codes[-1]} would not show"
        return Finding(value=None, count=len(chosen), reason=Reason.UNSUPPORTED, detail=text)
    return Finding(value=0.0, count=len(chosen))


def least(series: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the least sample of the window: of a margin, the worst."""
    return _extreme(series, start_ns, end_ns, greatest=False)


def mean_over(series: Series, start_ns: int, end_ns: int) -> Finding:
    """Return the mean of the window's samples."""
    gap, values = uncovered(series, start_ns, end_ns), window_values(series, start_ns, end_ns)
    if gap is not None or not len(values):
        return gap or no_sample(series)
    return Finding(value=float(values.mean()), count=len(values))


def _extreme(series: Series, start_ns: int, end_ns: int, *, greatest: bool) -> Finding:
    gap = uncovered(series, start_ns, end_ns)
    values = window_values(series, start_ns, end_ns)
    if not len(values):
        return gap or no_sample(series)
    extreme = float(values.max() if greatest else values.min())
    if gap is not None:
        return replace(gap, partial=extreme)
    return Finding(value=extreme, count=len(values))


def uncovered(series: Series, start_ns: int, end_ns: int) -> Finding | None:
    """Return why the samples do not speak for the window: lost before its end, or too often missing."""
    inside = np.flatnonzero((series.t_ns >= start_ns) & (series.t_ns <= end_ns))
    missing = inside[np.isnan(series.values[inside])]
    if len(inside) and len(missing) and (missing[-1] == inside[-1] or len(missing) > 0.1 * len(inside)):
        reason, detail = series.why_missing
        text = f"{len(missing)} of {len(inside)} samples are missing: {detail}"
        return Finding(value=None, count=len(inside), reason=reason, detail=text)
    moments, _ = present_samples(series)
    known, later = moments[moments <= end_ns], moments[moments > end_ns]
    soon = len(later) > 0 and later[0] - end_ns <= _SOON_NS
    if len(known) and end_ns - known[-1] > _SILENT_NS and not soon:
        text = f"not seen in the last {(end_ns - known[-1]) / 1e9:.0f} s of the load"
        return Finding(value=None, count=len(known), reason=Reason.STALE, detail=text)
    return None


def window_values(series: Series, start_ns: int, end_ns: int) -> np.ndarray:
    """Return the values that are there in the window, in the order of their moments."""
    moments, values = present_samples(series)
    inside: np.ndarray = values[(moments >= start_ns) & (moments <= end_ns)]
    return inside


def present_samples(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Return moments in ns and values of all samples that have a value, the earliest first."""
    there = ~np.isnan(series.values)
    order = np.argsort(series.t_ns[there], kind="stable")
    return series.t_ns[there][order], series.values[there][order]


def no_sample(series: Series) -> Finding:
    """Return that there is no value, for the reason that the series gives."""
    reason, detail = series.why_missing
    return Finding(value=None, reason=reason, detail=detail)
