"""Time to first token by percentile, one chart per load: each nine takes equal room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from rackgate_reports.charts.scales import Scale, logarithmic, nines
from rackgate_reports.charts.svg import COLOURS, element, label, polyline, rect, rule
from rackgate_reports.digest.checks import CheckRow
from rackgate_reports.digest.latency import Latencies, percentile
from rackgate_reports.formatting import amount, clip, limit, plural, stage_name

_WIDTH, _HEIGHT = 520, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 14, 16, 34
_CURVE_POINTS, _FAINT_CURVE_POINTS, _MOST_FAINT_CURVES = 160, 40, 96
_MARKS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentileChart:
    """The chart of one load and the numbers around it; `problem` says why there is no chart.

    `legend` is the class of a line and its text.
    """

    title: str
    latencies: Latencies
    problem: str = ""
    failed_share: str = ""
    svg: str = ""
    legend: tuple[tuple[str, str], ...] = ()
    numbers: Mapping[str, str]


def percentile_chart(
    latencies: Latencies, limits: Sequence[CheckRow], colours: Mapping[str, int]
) -> PercentileChart:
    """Draw the curve of all requests, thin curves per engine, limits and failures of one load."""
    title, total = f"{stage_name(latencies.stage)} · {latencies.load}", len(latencies.ttft_ms)
    if latencies.problem or not total:
        problem = latencies.problem or "no request was judged"
        return PercentileChart(title=title, latencies=latencies, problem=problem, numbers={})
    ordered = np.sort(latencies.ttft_ms)
    finite = ordered[np.isfinite(ordered)]
    values = {name.upper(): amount(percentile(ordered, share), "ms") for name, share in _MARKS.items()}
    spoken = ", ".join(f"{name} {value}" for name, value in values.items())
    return PercentileChart(
        title=title,
        latencies=latencies,
        failed_share=amount(100.0 * latencies.failed / total, "%"),
        svg=element(
            "svg",
            *_plot(latencies, ordered, limits, colours),
            class_="chart",
            viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
            role="img",
            aria_label=clip(f"{title}: time to first token by percentile. {spoken}.", 600),
        ),
        legend=_legend(latencies, colours),
        numbers={
            **{name: values[name] for name in ("P50", "P95", "P99")},
            "Max (ok)": amount(float(finite[-1]) if len(finite) else None, "ms"),
            "Failed": f"{latencies.failed:,}",
        },
    )


def _distinct_engines(latencies: Latencies) -> tuple[str, ...]:
    """Return the engines with a colour of their own: all of a few, the slowest by median of many."""
    if len(latencies.engines) <= COLOURS:
        return latencies.engines if len(latencies.engines) > 1 else ()
    medians = {name: percentile(np.sort(latencies.of_engine(name)), 0.5) or 0.0 for name in latencies.engines}
    return (max(medians, key=lambda name: medians[name]),)


def _legend(latencies: Latencies, colours: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    distinct, many = _distinct_engines(latencies), len(latencies.engines) > COLOURS
    if not distinct:
        return ()
    faint = [("line faint", f"each of {len(latencies.engines)} engines")] if many else []
    prefix = "slowest: " if many else ""
    own = [(f"line s{colours.get(name, 0)}", f"{prefix}{clip(name, 60)}") for name in distinct]
    return (("line all", "all requests"), *faint, *own)


def _plot(
    latencies: Latencies,
    ordered: NDArray[np.float64],
    limits: Sequence[CheckRow],
    colours: Mapping[str, int],
) -> list[Markup]:
    finite = ordered[np.isfinite(ordered) & (ordered > 0)]
    bounds = [row.bound for row in limits if row.bound and np.isfinite(row.bound)]
    low = float(finite[0]) if len(finite) else min(bounds, default=1.0)
    high = max([float(finite[-1]) if len(finite) else low, *bounds])
    y, y_ticks = logarithmic(low, high, _HEIGHT - _BOTTOM, _TOP)
    x, x_ticks = nines(1 - 1 / max(100, len(ordered)), _LEFT, _WIDTH - _RIGHT)
    parts = [rule(_LEFT, y.place(tick), _WIDTH - _RIGHT, y.place(tick), "grid") for tick in y_ticks]
    parts += [label(_LEFT - 8, y.place(tick) + 4, amount(tick), "tick", "end") for tick in y_ticks]
    parts.append(label(6, 10, "ms", "tick"))
    for share, name in x_ticks:
        parts.append(rule(x.place(share), _TOP, x.place(share), _HEIGHT - _BOTTOM, "grid"))
        parts.append(
            label(x.place(share), _HEIGHT - _BOTTOM + 18, name, "tick", "middle" if share else "start")
        )
    parts += _failures(ordered, x)
    if len(latencies.engines) > COLOURS:
        parts += [
            _curve(np.sort(latencies.of_engine(name)), x, y, "line faint", _FAINT_CURVE_POINTS)
            for name in latencies.engines[:_MOST_FAINT_CURVES]
        ]
    for name in _distinct_engines(latencies):
        own = np.sort(latencies.of_engine(name))
        parts.append(_curve(own, x, y, f"line thin s{colours.get(name, 0)}"))
    parts.append(_curve(ordered, x, y, "line all"))
    parts += _limits(limits, x, y)
    return parts


def _curve(
    ordered: NDArray[np.float64], x: Scale, y: Scale, classes: str, points: int = _CURVE_POINTS
) -> Markup:
    """Draw rank k of n at k / n, up to the last request that has a value."""
    n = len(ordered)
    shares = 1 - np.power(10.0, -np.linspace(0, np.log10(max(n, 2)), points))
    ranks = np.unique(np.clip(np.ceil(shares * n).astype(np.int64), 1, n))
    values = ordered[ranks - 1]
    good = np.isfinite(values)
    place = np.minimum((ranks - 0.5) / n, x.high)
    return polyline(x.places(place[good]), y.places(values[good]), classes)


def _failures(ordered: NDArray[np.float64], x: Scale) -> list[Markup]:
    failed = int(np.isinf(ordered).sum())
    if not failed:
        return []
    start = x.place(min(1 - failed / len(ordered), x.high))
    start = min(start, _WIDTH - _RIGHT - 6)
    title = f"{plural(failed, 'failed request')}: no first token, counted as infinite"
    return [
        rect((start, _TOP, _WIDTH - _RIGHT - start, _HEIGHT - _BOTTOM - _TOP), "failed-zone", title),
        label(_WIDTH - _RIGHT - 4, _TOP + 12, f"{failed:,} failed", "bad-label", "end"),
    ]


def _limits(limits: Sequence[CheckRow], x: Scale, y: Scale) -> list[Markup]:
    parts: list[Markup] = []
    drawn: set[tuple[str, float]] = set()
    for row in limits:
        statistic, bound = row.statistic, row.bound
        if statistic not in _MARKS or bound is None or not np.isfinite(bound) or (statistic, bound) in drawn:
            continue
        drawn.add((statistic, bound))
        px, py = x.place(_MARKS[statistic]), y.place(bound)
        text = f"{statistic.upper()} {limit(row.op, bound)}"
        end = px + 60 > _WIDTH - _RIGHT
        parts += [
            rule(px - 26, py, px + 26, py, "limit"),
            rule(px, py, px, py + 7, "limit"),
            label(_WIDTH - _RIGHT if end else px, py - 6, text, "limit-label", "end" if end else "middle"),
        ]
    return parts
