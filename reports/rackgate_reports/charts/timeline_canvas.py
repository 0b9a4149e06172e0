"""The canvas of the timeline: its panels are drawn on it from top to bottom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from rackgate_reports.charts.scales import Scale
from rackgate_reports.charts.svg import label, rule
from rackgate_reports.formatting import amount

WIDTH, LEFT, RIGHT = 1040, 74, 1022
"""Width of the canvas, left and right edge of the plots."""

BINS = 480
"""Number of bins of the time axis."""

BIN_WIDTH = (RIGHT - LEFT) / BINS


@dataclass(slots=True, kw_only=True)
class TimelineCanvas:
    """The timeline while it is drawn; `readout` holds what the cursor reads, one value per bin."""

    x: Scale
    start_ns: int
    colours: Mapping[str, int]
    suspects: Sequence[str]
    y: float = 0.0
    parts: list[Markup] = field(default_factory=list)
    readout: list[dict[str, Any]] = field(default_factory=list)

    @property
    def bin_centres(self) -> NDArray[np.float64]:
        """The x of the middle of every bin."""
        return np.asarray(LEFT + (np.arange(BINS) + 0.5) * BIN_WIDTH, np.float64)

    def x_of(self, moment_ns: int) -> float:
        """Return the x of a timestamp."""
        return self.x.place((moment_ns - self.start_ns) / 1e9)

    def draw(self, *parts: Markup) -> None:
        """Add parts in front of those already drawn."""
        self.parts += parts

    def begin_panel(self, title: str, height: float) -> tuple[float, float]:
        """Begin a panel below the last panel; return its upper and lower edge."""
        self.draw(label(LEFT, self.y + 16, title, "panel-title"))
        upper = self.y + 26
        self.y = upper + height + 8
        return upper, upper + height

    def draw_y_axis(self, y: Scale, ticks: Sequence[float]) -> None:
        """Draw the ticks of a panel with lines across it."""
        for tick in ticks:
            place = y.place(tick)
            self.draw(rule(LEFT, place, RIGHT, place, "grid"))
            self.draw(label(LEFT - 8, place + 4, amount(tick), "tick", "end"))

    def draw_missing(self, upper: float, reason: str) -> None:
        """Write the reason for an empty panel in its place."""
        self.draw(label(LEFT, upper + 14, f"No data: {reason}", "panel-note"))
        self.y = upper + 30

    def add_readout(self, name: str, unit: str, values: NDArray[np.float64]) -> None:
        """Add a series that the cursor reads, in three digits."""
        numbers = [None if np.isnan(value) else _rounded(value) for value in values.tolist()]
        reach = int(joining_distance(values) / BIN_WIDTH)
        self.readout.append({"name": name, "unit": unit, "reach": reach, "v": numbers})


def joining_distance(values: NDArray[np.float64]) -> float:
    """Return how far apart two points may be and still be joined: five times their usual distance."""
    known = np.flatnonzero(np.isfinite(values))
    usual = float(np.median(np.diff(known))) if len(known) > 1 else 1.0
    return max(4.0, 5 * usual) * BIN_WIDTH


def _rounded(value: float) -> float:
    return float(round(value)) if abs(value) >= 100 else float(f"{value:.3g}")
