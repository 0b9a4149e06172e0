"""Pieces of SVG that every chart uses; `element` escapes all of their text and attributes."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from rackgate_reports.formatting import clip

COLOURS = 8
"""Number of series that colour and dash tell apart; a chart with more shows a band."""


def element(name: str, *content: str, **attributes: str | float) -> Markup:
    """Return an element; `class_` becomes `class`, `text_anchor` becomes `text-anchor`, "" is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value != ""
    )
    inner = "".join(escape(part) for part in content)
    end = f">{inner}</{name}>" if inner else "/>"
    return Markup(f"<{name}{written}{end}")  # noqa: S704 (everything in it is escaped)


def _attribute(value: str | float) -> Markup:
    return escape(short(value) if isinstance(value, float) else value)


def short(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def label(x: float, y: float, text: str, classes: str = "", anchor: str = "start") -> Markup:
    """Return a text; `anchor` is start, middle or end."""
    where = "" if anchor == "start" else anchor
    return element("text", clip(text, 80), x=float(x), y=float(y), text_anchor=where, class_=classes)


def rule(x1: float, y1: float, x2: float, y2: float, classes: str) -> Markup:
    """Return a straight line."""
    return element("path", class_=classes, d=f"M{short(x1)} {short(y1)}L{short(x2)} {short(y2)}")


def rect(box: tuple[float, float, float, float], classes: str, title: str = "") -> Markup:
    """Return a rectangle of x, y, width, height; `title` is shown on hover and read aloud."""
    x, y, width, height = map(float, box)
    inner = element("title", clip(title)) if title else ""
    return element("rect", inner, class_=classes, x=x, y=y, width=max(0.0, width), height=height)


def polyline(
    x: NDArray[np.float64], y: NDArray[np.float64], classes: str, *, reach: float = np.inf
) -> Markup:
    """Return a line through the points that are numbers, broken where they are more than `reach` apart."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if not len(x):
        return Markup()
    breaks = np.concatenate([[True], np.diff(x) > reach])
    points = [
        f"{'M' if new else 'L'}{short(px)} {short(py)}"
        for px, py, new in zip(x.tolist(), y.tolist(), breaks.tolist(), strict=True)
    ]
    return element("path", class_=classes, d="".join(points))
