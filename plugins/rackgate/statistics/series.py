"""Telemetry over a window: time-weighted means, energy and throttle time, with their coverage."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

THROTTLE_MASK = 0xE8
"""Bits of `clock_event_reasons` that are faults: hardware slowdown, both thermal slowdowns, power brake."""

_LEAST_COVERAGE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesValue:
    """A value over a window, and how much of the window the samples covered.

    `value` is None if less than 90 % is covered. `partial` is the value over the covered part only, None
    if nothing is covered.
    """

    value: float | None
    partial: float | None
    covered_s: float
    window_s: float

    @property
    def coverage(self) -> float:
        """Covered share of the window, 0 to 1."""
        return self.covered_s / self.window_s if self.window_s > 0 else 0.0


def time_weighted_mean(
    t_ns: npt.ArrayLike, values: npt.ArrayLike, *, start_ns: int, end_ns: int, gap_limit_s: float
) -> SeriesValue:
    """Return the area under the samples (trapezoids) / the covered time, in the values' unit.

    NaN marks a missing sample. Two neighbouring samples cover the time between them unless they are
    further apart than `gap_limit_s`. Samples outside the window cover its edges by interpolation. Samples
    need not be sorted.
    """
    moments, samples = _samples(t_ns, values)
    left, right, inside = _pieces(moments, start_ns, end_ns, gap_limit_s)
    if not len(inside):
        return _series_value(None, 0.0, start_ns, end_ns)
    slopes = (samples[1:] - samples[:-1])[inside] / (moments[1:] - moments[:-1])[inside]
    base, since = samples[:-1][inside], moments[:-1][inside]
    heights = base + slopes * ((left + right) / 2.0 - since)
    covered_ns = float((right - left).sum())
    area = float((heights * (right - left)).sum())
    return _series_value(area / covered_ns, covered_ns / 1e9, start_ns, end_ns)


def last_fifth_mean(
    t_ns: npt.ArrayLike, values: npt.ArrayLike, *, start_ns: int, end_ns: int, gap_limit_s: float
) -> SeriesValue:
    """Return the time-weighted mean of the window's last fifth, such as a temperature's steady value."""
    begin_ns = end_ns - (end_ns - start_ns) // 5
    return time_weighted_mean(t_ns, values, start_ns=begin_ns, end_ns=end_ns, gap_limit_s=gap_limit_s)


def energy_from_counter_j(
    t_ns: npt.ArrayLike, counter_j: npt.ArrayLike, *, start_ns: int, end_ns: int, gap_limit_s: float
) -> float | None:
    """Return counter(end) - counter(start), in J, interpolated between the samples around each edge.

    The counter bridges gaps inside the window. None if an edge has neither two samples around it within
    `gap_limit_s` nor a sample exactly on it, and None if the counter ever fell, since it was reset then.
    """
    moments, samples = _samples(t_ns, counter_j)
    first = _reading(moments, samples, start_ns, gap_limit_s)
    last = _reading(moments, samples, end_ns, gap_limit_s)
    if first is None or last is None or end_ns <= start_ns:
        return None
    begin = max(0, int(np.searchsorted(moments, start_ns, side="right")) - 1)
    end = int(np.searchsorted(moments, end_ns, side="left")) + 1
    if (np.diff(samples[begin:end]) < 0).any():
        return None
    return last - first


def throttle_time_s(
    t_ns: npt.ArrayLike,
    masks: npt.ArrayLike,
    *,
    start_ns: int,
    end_ns: int,
    gap_limit_s: float,
    mask: int = THROTTLE_MASK,
    unless: int = 0,
) -> SeriesValue:
    """Return the time in which `clock_event_reasons & mask` is not zero and `& unless` is, in s.

    Each sample holds until the next sample, unless that is further away than `gap_limit_s`. NaN marks a
    missing sample. A `partial` above a limit proves throttling even where coverage is too small.
    """
    moments, samples = _samples(t_ns, masks)
    left, right, inside = _pieces(moments, start_ns, end_ns, gap_limit_s)
    bits = samples[:-1][inside].astype(np.int64)
    throttled = ((bits & mask) != 0) & ((bits & unless) == 0)
    covered_s = float((right - left).sum()) / 1e9
    seen_s = float((right - left)[throttled].sum()) / 1e9
    return _series_value(seen_s if len(inside) else None, covered_s, start_ns, end_ns)


def _samples(
    t_ns: npt.ArrayLike, values: npt.ArrayLike
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    moments = np.asarray(t_ns, dtype=np.int64).ravel()
    samples = np.asarray(values, dtype=np.float64).ravel()
    if len(moments) != len(samples):
        raise ValueError(f"{len(moments)} moments do not belong to {len(samples)} values")
    there = ~np.isnan(samples)
    order = np.argsort(moments[there], kind="stable")
    return moments[there][order], samples[there][order]


def _pieces(
    moments: npt.NDArray[np.int64], start_ns: int, end_ns: int, gap_limit_s: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.intp]]:
    """Return the covered intervals cut to the window, and the index of the sample that begins each."""
    left = np.maximum(moments[:-1], start_ns)
    right = np.minimum(moments[1:], end_ns)
    near = np.diff(moments) <= gap_limit_s * 1e9
    inside = np.flatnonzero((right > left) & near)
    return left[inside], right[inside], inside


def _series_value(partial: float | None, covered_s: float, start_ns: int, end_ns: int) -> SeriesValue:
    window_s = (end_ns - start_ns) / 1e9
    enough = window_s > 0 and covered_s >= _LEAST_COVERAGE * window_s
    return SeriesValue(
        value=partial if enough else None, partial=partial, covered_s=covered_s, window_s=max(0.0, window_s)
    )


def _reading(
    moments: npt.NDArray[np.int64], samples: npt.NDArray[np.float64], at_ns: int, gap_limit_s: float
) -> float | None:
    after = int(np.searchsorted(moments, at_ns, side="left"))
    if after < len(moments) and moments[after] == at_ns:
        return float(samples[after])
    if after in (0, len(moments)) or moments[after] - moments[after - 1] > gap_limit_s * 1e9:
        return None
    share = (at_ns - moments[after - 1]) / (moments[after] - moments[after - 1])
    reading = float(samples[after - 1] + share * (samples[after] - samples[after - 1]))
    return reading if math.isfinite(reading) else None
