"""The panels of the timeline: latency, telemetry of the cards, throttling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rackgate_reports.charts.canvas import (
    BINS,
    LEFT,
    RIGHT,
    STEP,
    Canvas,
    begin_panel,
    draw_y_axis,
    reach_of,
    remember,
    say_missing,
)
from rackgate_reports.charts.scales import Scale, linear, logarithmic
from rackgate_reports.charts.svg import COLOURS, label, polyline, rect, swatch
from rackgate_reports.digest.latency import Latencies, percentile
from rackgate_reports.digest.telemetry import THROTTLE_BITS, Folded, Telemetry
from rackgate_reports.formatting import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


SCATTER = 3000
_ROW = 12
_SUSPECTS = 5
_THROTTLE_ROWS = 16
_MASK = sum(THROTTLE_BITS)


def latency_panel(canvas: Canvas, loads: Sequence[Latencies], stop_ns: int) -> None:
    """Draw every request of a short run, P50 and P99 of each bin of a long one, failures above."""
    upper, lower = begin_panel(canvas, "Time to first token, ms (log)", 150)
    if not loads or not any(len(part.at_ns) for part in loads):
        problems = [part.problem for part in loads if part.problem]
        say_missing(canvas, upper, problems[0] if problems else "no load was offered")
        return
    at_ns = np.concatenate([part.at_ns for part in loads])
    ttft = np.concatenate([part.ttft_ms for part in loads])
    span = max(1, stop_ns - canvas.start_ns)
    place = np.clip(((at_ns - canvas.start_ns) * BINS / span).astype(np.int64), 0, BINS - 1)
    middle, tail, failed = _by_bin(place, ttft)
    drawn = ttft if len(ttft) <= SCATTER else np.concatenate([middle, tail])
    drawn = drawn[np.isfinite(drawn) & (drawn > 0)]
    if not len(drawn):
        say_missing(canvas, upper, "no request was answered")
        return
    y, ticks = logarithmic(float(drawn.min()), float(drawn.max()), lower, upper + 10)
    draw_y_axis(canvas, y, ticks)
    centres = canvas.centres
    if len(ttft) <= SCATTER:
        for part in loads:
            _scatter(canvas, part, y)
    reach = reach_of(middle)
    if len(ttft) > SCATTER:
        canvas.parts.append(polyline(centres, y.places(tail), "line p99", reach=reach))
        canvas.parts.append(polyline(centres, y.places(middle), "line all", reach=reach))
    for bin_place in np.flatnonzero(failed):
        text = f"{int(failed[bin_place])} failed"
        canvas.parts.append(rect((centres[bin_place] - 1, upper, 2, 7), "failed-mark", text))
    remember(canvas, "TTFT P50", "ms", middle)
    remember(canvas, "TTFT P99", "ms", tail)
    canvas.readout.append({"name": "Failed requests", "unit": "", "reach": 0, "v": [int(n) for n in failed]})


def _scatter(canvas: Canvas, part: Latencies, y: Scale) -> None:
    x = canvas.x.places((part.at_ns - canvas.start_ns) / 1e9)
    for code, name in enumerate(part.engines):
        own = (part.engine == code) & np.isfinite(part.ttft_ms)
        points = "".join(
            f"M{px:.1f} {py:.1f}h0"
            for px, py in zip(x[own].tolist(), y.places(part.ttft_ms[own]).tolist(), strict=True)
        )
        canvas.parts.append(f'<path class="dots s{canvas.colours.get(name, 0)}" d="{points}"/>')


def _by_bin(
    place: NDArray[np.int64], ttft: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return P50 and P99 of the answered requests, and the count of failed ones, of every bin."""
    middle, tail = np.full(BINS, np.nan), np.full(BINS, np.nan)
    failed = np.bincount(place[np.isinf(ttft)], minlength=BINS)
    order = np.lexsort((ttft, place))
    place, ttft = place[order], ttft[order]
    edges = np.searchsorted(place, np.arange(BINS + 1))
    for index in np.unique(place):
        own = ttft[edges[index] : edges[index + 1]]
        own = own[np.isfinite(own)]
        if len(own):
            middle[index], tail[index] = percentile(own, 0.5), percentile(own, 0.99)
    return middle, tail, failed


def telemetry_panel(
    canvas: Canvas,
    telemetry: Telemetry,
    name: str,
    words: tuple[str, str],
) -> None:
    """Draw one field of every card; of a large rack a band, its median and the suspects."""
    upper, lower = begin_panel(canvas, f"{words[0]}, {words[1]}", 104)
    entities = telemetry.entities(name)
    if not entities:
        say_missing(canvas, upper, telemetry.problem or f"the telemetry has no {name}")
        return
    series = {entity: telemetry.series[entity, name] for entity in entities}
    low = min(float(np.nanmin(one.low)) for one in series.values())
    high = max(float(np.nanmax(one.high)) for one in series.values())
    y, ticks = linear(low, high, lower, upper)
    draw_y_axis(canvas, y, ticks)
    alone = (
        entities
        if len(entities) <= COLOURS
        else [name for name in canvas.suspects if name in series][:_SUSPECTS]
    )
    if len(entities) > COLOURS:
        _band(canvas, list(series.values()), y, words)
    for entity in alone:
        one = series[entity]
        classes = f"line thin s{canvas.colours.get(entity, 0)}"
        canvas.parts.append(_minmax(canvas, one, y, classes))
        remember(canvas, f"{entity} {words[0].split()[0].lower()}", words[1], one.mean)


def _minmax(canvas: Canvas, one: Folded, y: Scale, classes: str) -> str:
    """Draw a line through the least and greatest value of every bin, so that no peak is lost."""
    x = np.repeat(canvas.centres, 2)
    values = np.column_stack([one.low, one.high]).ravel()
    known = np.isfinite(values)
    x, values = x[known], values[known]
    keep = np.concatenate([[True], (np.diff(values) != 0) | (np.diff(x) != 0)])
    return polyline(x[keep], y.places(values[keep]), classes, reach=reach_of(one.mean))


def _band(canvas: Canvas, series: Sequence[Folded], y: Scale, words: tuple[str, str]) -> None:
    lows, highs = np.array([one.low for one in series]), np.array([one.high for one in series])
    means = np.array([one.mean for one in series])
    known = np.isfinite(means).any(axis=0)
    low, high, middle = np.full(BINS, np.nan), np.full(BINS, np.nan), np.full(BINS, np.nan)
    low[known] = np.nanmin(lows[:, known], axis=0)
    high[known] = np.nanmax(highs[:, known], axis=0)
    middle[known] = np.nanmedian(means[:, known], axis=0)
    x = canvas.centres[known]
    outline = polyline(
        np.concatenate([x, x[::-1]]),
        np.concatenate([y.places(high[known]), y.places(low[known])[::-1]]),
        "band",
    )
    canvas.parts.append(outline)
    canvas.parts.append(polyline(x, y.places(middle[known]), "line all"))
    for name, values in (("median", middle), ("least", low), ("greatest", high)):
        remember(canvas, f"{words[0].split()[0]} {name}", words[1], values)


def throttle_panel(canvas: Canvas, telemetry: Telemetry) -> None:
    """Draw a row per card with the times in which it was throttled."""
    entities = telemetry.entities("clock_event_reasons")
    upper, _ = begin_panel(canvas, "Throttling (clock event reasons & 0xE8)", 0)
    if not entities:
        say_missing(canvas, upper, telemetry.problem or "the telemetry has no clock_event_reasons")
        return
    bits = {entity: _held_bits(telemetry.series[entity, "clock_event_reasons"]) for entity in entities}
    shown = (
        [entity for entity in entities if bits[entity].any()] if len(entities) > COLOURS else list(entities)
    )
    canvas.y = upper
    for entity in shown[:_THROTTLE_ROWS]:
        canvas.parts.append(
            label(LEFT - 8, canvas.y + 9, entity.removeprefix("/")[-11:], "tick small", "end")
        )
        canvas.parts.append(rect((LEFT, canvas.y + 1, RIGHT - LEFT, _ROW - 3), "throttle-row"))
        _throttle_marks(canvas, entity, bits[entity])
        canvas.y += _ROW
        if bits[entity].any():
            canvas.readout.append(
                {"name": f"{entity} throttle", "unit": "bits", "reach": 0, "v": bits[entity].tolist()}
            )
    quiet = len(entities) - sum(bool(bits[entity].any()) for entity in entities)
    rest = len(shown) - _THROTTLE_ROWS
    note = f"{quiet} of {len(entities)} cards never throttled" + (f"; {rest} more did" if rest > 0 else "")
    canvas.parts.append(label(LEFT, canvas.y + 12, note, "panel-note"))
    canvas.y += 24


def _held_bits(one: Folded) -> NDArray[np.int64]:
    """The throttle bits of every bin; one without a sample holds the last one taken shortly before."""
    known = np.where(np.isfinite(one.mean), np.arange(BINS), -1)
    last = np.maximum.accumulate(known)
    near = (last >= 0) & (np.arange(BINS) - last <= reach_of(one.mean) / STEP)
    return np.where(near, one.bits[last] & _MASK, 0)


def _throttle_marks(canvas: Canvas, entity: str, bits: NDArray[np.int64]) -> None:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], bits, [0]])))
    for start, stop in zip(edges.tolist(), edges[1:].tolist(), strict=False):
        value = int(bits[start])
        if value:
            names = ", ".join(name for bit, name in THROTTLE_BITS.items() if value & bit)
            box = (LEFT + start * STEP, canvas.y, max(2.0, (stop - start) * STEP), _ROW - 1)
            canvas.parts.append(rect(box, "throttle-mark", f"{entity}: {names}"))


def legend(canvas: Canvas, telemetry: Telemetry, loads: Sequence[Latencies]) -> str:
    """Return the key of the timeline's lines."""
    entities = list(dict.fromkeys(entity for entity, _ in telemetry.series))
    total = sum(len(part.at_ns) for part in loads)
    items = []
    if total > SCATTER:
        items += [
            f"<li>{swatch('line all')}TTFT P50</li>",
            f"<li>{swatch('line p99')}TTFT P99 of each bin</li>",
        ]
    else:
        entities += [name for part in loads for name in part.engines]
    names = list(dict.fromkeys(sorted(entities)))
    if len(names) > COLOURS:
        items.append(f"<li>{swatch('band-line')}{len(names)} cards, least to greatest, and median</li>")
        names = [name for name in canvas.suspects if name in names][:_SUSPECTS]
    items += [
        f"<li>{swatch(f'line s{canvas.colours.get(name, 0)}')}{escape(name, 60)}</li>" for name in names
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'
