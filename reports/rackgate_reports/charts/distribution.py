"""Latency by percentile, one panel per load: each nine takes equal room, failures stand at infinity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rackgate_reports.charts.scales import Scale, logarithmic, nines
from rackgate_reports.charts.svg import COLOURS, empty_chart, label, polyline, rect, rule, swatch
from rackgate_reports.digest.latency import Latencies, percentile
from rackgate_reports.formatting import amount, escape, plural, stage_name
from rackgate_reports.formatting import limit as limit_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rackgate_reports.digest.checks import CheckRow


_WIDTH, _HEIGHT = 520, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 14, 16, 34
_CURVE_POINTS = 160
_MARKS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


def distribution_panel(latencies: Latencies, limits: Sequence[CheckRow], colours: Mapping[str, int]) -> str:
    """Return the figure of one load: curve of all requests, thin curves per engine, limits, failures."""
    title = f"{stage_name(latencies.stage)} · {latencies.load}"
    head = f'<figure class="panel"><figcaption><h3>{escape(title, 80)}</h3>'
    total = len(latencies.ttft_ms)
    if latencies.problem or not total:
        return f"{head}</figcaption>{empty_chart(latencies.problem or 'no request was judged')}</figure>"
    failed = latencies.failed
    note = f"{plural(total, 'request')}, counted from {escape(latencies.origin, 20)}"
    ordered = np.sort(latencies.ttft_ms)
    note += (
        f'; <strong class="bad-text">{failed:,} failed ({_share(failed, total)})</strong>'
        if failed
        else "; none failed"
    )
    if latencies.set_aside:
        note += f"; {plural(latencies.set_aside, 'request')} of quarantined engines set aside"
    parts = _plot(latencies, ordered, limits, colours)
    return (
        f"{head}<p>{note}</p></figcaption>"
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(_said(title, ordered), 600)}">'
        f"{''.join(parts)}</svg>{_legend(latencies, colours)}{_numbers(ordered, latencies)}</figure>"
    )


def _share(part: int, whole: int) -> str:
    return amount(100.0 * part / whole, "%")


def _value(value: float | None) -> str:
    return amount(value, "ms")


def _said(title: str, ordered: NDArray[np.float64]) -> str:
    values = ", ".join(
        f"{name.upper()} {_value(percentile(ordered, share))}" for name, share in _MARKS.items()
    )
    return f"{title}: time to first token by percentile. {values}."


def _numbers(ordered: NDArray[np.float64], latencies: Latencies) -> str:
    names = ("p50", "p95", "p99")
    cells = "".join(
        f"<div><dt>{name.upper()}</dt><dd>{_value(percentile(ordered, _MARKS[name]))}</dd></div>"
        for name in names
    )
    finite = ordered[np.isfinite(ordered)]
    greatest = _value(float(finite[-1]) if len(finite) else None)
    return (
        f'<dl class="mini">{cells}<div><dt>Max (ok)</dt><dd>{greatest}</dd></div>'
        f"<div><dt>Failed</dt><dd>{latencies.failed:,}</dd></div></dl>"
    )


def _named(latencies: Latencies) -> tuple[str, ...]:
    """The engines that are told apart: all of a few, of many the one with the greatest median."""
    if len(latencies.engines) <= COLOURS:
        return latencies.engines if len(latencies.engines) > 1 else ()
    medians = {name: percentile(np.sort(latencies.of_engine(name)), 0.5) or 0.0 for name in latencies.engines}
    return (max(medians, key=lambda name: medians[name]),)


def _legend(latencies: Latencies, colours: Mapping[str, int]) -> str:
    named = _named(latencies)
    if not named:
        return ""
    many = len(latencies.engines) > COLOURS
    items = [f"<li>{swatch('line all')}all requests</li>"]
    items += [f"<li>{swatch('line faint')}each of {len(latencies.engines)} engines</li>"] if many else []
    items += [
        f"<li>{swatch(f'line s{colours.get(name, 0)}')}{'slowest: ' if many else ''}{escape(name, 60)}</li>"
        for name in named
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'


def _plot(
    latencies: Latencies,
    ordered: NDArray[np.float64],
    limits: Sequence[CheckRow],
    colours: Mapping[str, int],
) -> list[str]:
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
            _curve(np.sort(latencies.of_engine(name)), x, y, "line faint") for name in latencies.engines[:96]
        ]
    for name in _named(latencies):
        own = np.sort(latencies.of_engine(name))
        parts.append(_curve(own, x, y, f"line thin s{colours.get(name, 0)}"))
    parts.append(_curve(ordered, x, y, "line all"))
    parts += _limits(limits, x, y)
    return parts


def _curve(ordered: NDArray[np.float64], x: Scale, y: Scale, classes: str) -> str:
    """Draw rank k of n at k / n, up to the last request that has a value."""
    n = len(ordered)
    points = 40 if "faint" in classes else _CURVE_POINTS
    shares = 1 - np.power(10.0, -np.linspace(0, np.log10(max(n, 2)), points))
    ranks = np.unique(np.clip(np.ceil(shares * n).astype(np.int64), 1, n))
    values = ordered[ranks - 1]
    good = np.isfinite(values)
    place = np.minimum((ranks - 0.5) / n, x.high)
    return polyline(x.places(place[good]), y.places(values[good]), classes)


def _failures(ordered: NDArray[np.float64], x: Scale) -> list[str]:
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


def _limits(limits: Sequence[CheckRow], x: Scale, y: Scale) -> list[str]:
    parts: list[str] = []
    seen: set[tuple[str, float]] = set()
    for row in limits:
        share = _MARKS.get(row.statistic)
        if (
            share is None
            or row.bound is None
            or not np.isfinite(row.bound)
            or (row.statistic, row.bound) in seen
        ):
            continue
        seen.add((row.statistic, row.bound))
        px, py = x.place(share), y.place(row.bound)
        parts.append(rule(px - 26, py, px + 26, py, "limit"))
        parts.append(rule(px, py, px, py + 7, "limit"))
        text = f"{row.statistic.upper()} {limit_text(row.op, row.bound)}"
        end = px + 60 > _WIDTH - _RIGHT
        parts.append(
            label(_WIDTH - _RIGHT if end else px, py - 6, text, "limit-label", "end" if end else "middle")
        )
    return parts
