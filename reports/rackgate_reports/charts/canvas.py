"""The page on which the timeline is drawn from top to bottom, and what every panel of it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rackgate_reports.charts.svg import label, rule
from rackgate_reports.formatting import amount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rackgate_reports.charts.scales import Scale


WIDTH, LEFT, RIGHT = 1040, 74, 1022
"""Width of the page, left and right edge of the plots."""

BINS = 480
"""How many steps the time axis has."""

STEP = (RIGHT - LEFT) / BINS
"""Width of one step on the page."""


@dataclass(slots=True, kw_only=True)
class Canvas:
    """The figure while it is drawn from top to bottom."""

    x: Scale
    start_ns: int
    colours: Mapping[str, int]
    suspects: tuple[str, ...] = ()
    y: float = 0.0
    parts: list[str] = field(default_factory=list)
    readout: list[dict[str, Any]] = field(default_factory=list)

    def at(self, moment_ns: int) -> float:
        """Return where a moment lies."""
        return self.x.place((moment_ns - self.start_ns) / 1e9)

    @property
    def centres(self) -> NDArray[np.float64]:
        """Where the middle of every bin lies."""
        return np.asarray(LEFT + (np.arange(BINS) + 0.5) * STEP, np.float64)


def begin_panel(canvas: Canvas, title: str, height: float) -> tuple[float, float]:
    """Begin a panel; return its upper and lower edge."""
    canvas.parts.append(label(LEFT, canvas.y + 16, title, "panel-title"))
    upper = canvas.y + 26
    canvas.y = upper + height + 8
    return upper, upper + height


def draw_y_axis(canvas: Canvas, y: Scale, ticks: Sequence[float]) -> None:
    """Draw the ticks of a panel with lines across it."""
    for tick in ticks:
        place = y.place(tick)
        canvas.parts.append(rule(LEFT, place, RIGHT, place, "grid"))
        canvas.parts.append(label(LEFT - 8, place + 4, amount(tick), "tick", "end"))


def say_missing(canvas: Canvas, upper: float, why: str) -> None:
    """Say in the place of a panel why it is empty."""
    canvas.parts.append(label(LEFT, upper + 14, f"No data: {why}", "panel-note"))
    canvas.y = upper + 30


def reach_of(values: NDArray[np.float64]) -> float:
    """How far apart, on the page, two points may be and still be joined."""
    known = np.flatnonzero(np.isfinite(values))
    usual = float(np.median(np.diff(known))) if len(known) > 1 else 1.0
    return max(4.0, 5 * usual) * STEP


def remember(canvas: Canvas, name: str, unit: str, values: NDArray[np.float64]) -> None:
    """Keep what the cursor reads, in three digits."""
    numbers = [None if np.isnan(value) else _rounded(value) for value in values.tolist()]
    canvas.readout.append({"name": name, "unit": unit, "reach": int(reach_of(values) / STEP), "v": numbers})


def _rounded(value: float) -> float:
    return float(round(value)) if abs(value) >= 100 else float(f"{value:.3g}")
