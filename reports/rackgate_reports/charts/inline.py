"""Small charts that stand in a line of text or a list: a bar of counts, a value against its limit."""

from __future__ import annotations

import math
from collections.abc import Mapping

from markupsafe import Markup

from rackgate_reports.charts.scales import Scale
from rackgate_reports.charts.svg import element, label, rect, rule
from rackgate_reports.digest.checks import CheckRow


def counts_bar(counts: Mapping[str, int]) -> Markup:
    """Return a bar whose parts are as wide as their counts."""
    total = max(1, sum(counts.values()))
    parts: list[Markup] = []
    x = 0.0
    for name, number in counts.items():
        width = 100 * number / total
        box = {"x": f"{x:.2f}", "width": f"{width:.2f}", "height": "6"}
        parts.append(element("rect", class_=f"fill-{name.lower()}", **box))
        x += width
    view = {"viewBox": "0 0 100 6", "preserveAspectRatio": "none"}
    return element("svg", *parts, class_="bar", aria_hidden="true", **view)


def value_against_limit(row: CheckRow) -> Markup:
    """Return the value with its confidence bounds against the limit, from zero; empty if one is negative."""
    known = [number for number in (row.value, row.lower, row.upper, row.bound) if number is not None]
    if row.value is None or not row.bound or any(not math.isfinite(number) or number < 0 for number in known):
        return Markup()
    x = Scale(low=0.0, high=max(known) * 1.08, start=2, stop=318)
    edge, place = x.place(row.bound), x.place(row.value)
    inside = (2.0, edge - 2) if row.op == "<=" else (edge, 318 - edge)
    parts = [rect((2, 10, 316, 8), "w-bad"), rect((inside[0], 10, inside[1], 8), "w-good")]
    low = row.lower if row.lower is not None else row.value
    high = row.upper if row.upper is not None else row.value
    if high > low:
        parts.append(rule(x.place(low), 14, x.place(high), 14, "w-range"))
    anchor = "start" if edge < 60 else "end" if edge > 260 else "middle"
    parts += [
        element("circle", class_="w-dot", cx=f"{place:.1f}", cy=14, r=4),
        rule(edge, 5, edge, 23, "limit"),
        label(edge, 34, "limit", "tick", anchor),
    ]
    return element("svg", *parts, class_="whisker", viewBox="0 0 320 38", aria_hidden="true")
