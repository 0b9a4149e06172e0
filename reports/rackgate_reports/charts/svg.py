"""Pieces of SVG that every chart uses: text, lines, paths, colours by class, notes for empty charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rackgate_reports.formatting import escape

if TYPE_CHECKING:
    from numpy.typing import NDArray


COLOURS = 8
"""How many series are told apart by colour and dash; more become a band."""


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def label(x: float, y: float, text: str, classes: str = "", anchor: str = "start") -> str:
    """Return a text; `anchor` is start, middle or end."""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    style = f' class="{classes}"' if classes else ""
    return f'<text x="{_short(x)}" y="{_short(y)}"{where}{style}>{escape(text, 80)}</text>'


def rule(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    """Return a straight line."""
    return f'<path class="{classes}" d="M{_short(x1)} {_short(y1)}L{_short(x2)} {_short(y2)}"/>'


def rect(box: tuple[float, float, float, float], classes: str, title: str = "") -> str:
    """Return a rectangle of x, y, width, height; `title` is shown on hover and read aloud."""
    x, y, width, height = box
    inner = f"><title>{escape(title)}</title></rect>" if title else "/>"
    size = f'width="{_short(max(0.0, width))}" height="{_short(height)}"'
    return f'<rect class="{classes}" x="{_short(x)}" y="{_short(y)}" {size}{inner}'


def polyline(
    x: NDArray[np.float64], y: NDArray[np.float64], classes: str, *, reach: float | None = None
) -> str:
    """Return a line through the points that are numbers, broken where they are more than `reach` apart."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if not len(x):
        return ""
    breaks = np.concatenate([[True], np.diff(x) > (reach if reach is not None else np.inf)])
    parts = [
        f"{'M' if new else 'L'}{_short(px)} {_short(py)}"
        for px, py, new in zip(x.tolist(), y.tolist(), breaks.tolist(), strict=True)
    ]
    return f'<path class="{classes}" d="{"".join(parts)}"/>'


def swatch(classes: str) -> str:
    """Return the sample of a line for a legend."""
    path = f'<path class="{classes}" d="M1 4H21"/>'
    return f'<svg class="swatch" viewBox="0 0 22 8" aria-hidden="true">{path}</svg>'


def empty_chart(why: str) -> str:
    """Return what stands where a chart has nothing to show, with the reason."""
    return f'<p class="empty">No chart: {escape(why, 600)}.</p>'
