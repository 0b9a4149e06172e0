"""Axes: map values to coordinates, with ticks at round values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackgate_reports.formatting import amount

_TIME_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Maps [low, high] in the value's unit to the coordinates [start, stop] through `warp`."""

    low: float
    high: float
    start: float
    stop: float
    warp: Callable[[NDArray[np.float64]], NDArray[np.float64]] = lambda value: value

    def places(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the coordinates of values; those outside are put on the edge."""
        inside = np.clip(values, self.low, self.high)
        ends = self.warp(np.array([self.low, self.high]))
        share: NDArray[np.float64] = (self.warp(inside) - ends[0]) / ((ends[1] - ends[0]) or 1.0)
        return self.start + share * (self.stop - self.start)

    def place(self, value: float) -> float:
        """Return the coordinate of one value."""
        return float(self.places(np.array([value]))[0])


def linear(low: float, high: float, start: float, stop: float, want: int = 4) -> tuple[Scale, list[float]]:
    """Return a linear scale widened to round ends, and its ticks."""
    span = (high - low) or abs(high) or 1.0
    rough = span / want
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [index * step for index in range(first, max(last, first + 1) + 1)]
    return Scale(low=ticks[0], high=ticks[-1], start=start, stop=stop), ticks


def logarithmic(low: float, high: float, start: float, stop: float) -> tuple[Scale, list[float]]:
    """Return a logarithmic scale and ticks at 1, 2 and 5 times the powers of ten, or the powers alone."""
    low = max(low, 1e-6)
    high = max(high, low * 1.01)
    room = max(0.0, 1.0 - math.log10(high / low)) / 2
    low, high = low / 10 ** (room + 0.04), high * 10 ** (room + 0.04)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 300 else (1,)
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    scale = Scale(low=low, high=high, start=start, stop=stop, warp=np.log10)
    return scale, [tick for tick in ticks if low <= tick <= high]


def nines(deepest: float, start: float, stop: float) -> tuple[Scale, list[tuple[float, str]]]:
    """Return a scale of percentiles that widens the tail (each nine takes equal room), and its ticks."""
    high = min(max(deepest, 0.99), 0.99999)
    scale = Scale(low=0.0, high=high, start=start, stop=stop, warp=_nines)
    marks = ((0.0, "0"), (0.5, "P50"), (0.9, "P90"), (0.99, "P99"), (0.999, "P99.9"), (0.9999, "P99.99"))
    return scale, [(share, name) for share, name in marks if share <= high]


def _nines(share: NDArray[np.float64]) -> NDArray[np.float64]:
    places: NDArray[np.float64] = -np.log10(1.0 - share)
    return places


def clock_ticks(length_s: float, want: int = 9) -> list[tuple[float, str]]:
    """Return ticks of elapsed time as seconds and text."""
    step = next((size for size in _TIME_STEPS_S if length_s / size <= want), _TIME_STEPS_S[-1])
    ticks = [index * float(step) for index in range(math.floor(length_s / step) + 1)]
    return [(tick, _elapsed(tick, step)) for tick in ticks]


def _elapsed(seconds: float, step_s: float) -> str:
    if seconds == 0:
        return "0"
    if step_s >= 3600:
        return amount(seconds / 3600, "h")
    if step_s >= 60 or seconds % 60 == 0:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours}:{minutes:02d} h" if hours else amount(float(minutes), "min")
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes else amount(float(rest), "s")
