"""The panels of the timeline: latency, telemetry of the cards, throttling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from rackgate_reports.charts.scales import Scale, linear, logarithmic
from rackgate_reports.charts.svg import COLOURS, element, label, polyline, rect
from rackgate_reports.charts.timeline_canvas import (
    BIN_WIDTH,
    BINS,
    LEFT,
    RIGHT,
    TimelineCanvas,
    joining_distance,
)
from rackgate_reports.digest.latency import Latencies, percentile
from rackgate_reports.digest.telemetry import THROTTLE_BITS, BinnedSeries, Telemetry
from rackgate_reports.formatting import clip

MOST_DOTS = 3000
"""Up to so many requests are drawn as dots, more as percentiles of each bin."""

_ROW_HEIGHT = 12
_MOST_SUSPECTS = 5
_MOST_THROTTLE_ROWS = 16
_THROTTLE_MASK = sum(THROTTLE_BITS)


def latency_panel(canvas: TimelineCanvas, loads: Sequence[Latencies], stop_ns: int) -> None:
    """Draw every request of a short run, P50 and P99 of each bin of a long one, failures above."""
    upper, lower = canvas.begin_panel("Time to first token, ms (log)", 150)
    if not loads or not any(len(part.at_ns) for part in loads):
        problems = [part.problem for part in loads if part.problem]
        canvas.draw_missing(upper, problems[0] if problems else "no load was offered")
        return
    at_ns = np.concatenate([part.at_ns for part in loads])
    ttft = np.concatenate([part.ttft_ms for part in loads])
    span = max(1, stop_ns - canvas.start_ns)
    place = np.clip(((at_ns - canvas.start_ns) * BINS / span).astype(np.int64), 0, BINS - 1)
    middle, tail, failed = _by_bin(place, ttft)
    drawn = ttft if len(ttft) <= MOST_DOTS else np.concatenate([middle, tail])
    drawn = drawn[np.isfinite(drawn) & (drawn > 0)]
    if not len(drawn):
        canvas.draw_missing(upper, "no request was answered")
        return
    y, ticks = logarithmic(float(drawn.min()), float(drawn.max()), lower, upper + 10)
    canvas.draw_y_axis(y, ticks)
    centres = canvas.bin_centres
    if len(ttft) <= MOST_DOTS:
        for part in loads:
            _draw_dots(canvas, part, y)
    else:
        reach = joining_distance(middle)
        canvas.draw(polyline(centres, y.places(tail), "line p99", reach=reach))
        canvas.draw(polyline(centres, y.places(middle), "line all", reach=reach))
    for bin_place in np.flatnonzero(failed):
        text = f"{int(failed[bin_place])} failed"
        canvas.draw(rect((centres[bin_place] - 1, upper, 2, 7), "failed-mark", text))
    canvas.add_readout("TTFT P50", "ms", middle)
    canvas.add_readout("TTFT P99", "ms", tail)
    canvas.readout.append({"name": "Failed requests", "unit": "", "reach": 0, "v": [int(n) for n in failed]})


def _draw_dots(canvas: TimelineCanvas, part: Latencies, y: Scale) -> None:
    x = canvas.x.places((part.at_ns - canvas.start_ns) / 1e9)
    for code, name in enumerate(part.engines):
        own = (part.engine == code) & np.isfinite(part.ttft_ms)
        points = "".join(
            f"M{px:.1f} {py:.1f}h0"
            for px, py in zip(x[own].tolist(), y.places(part.ttft_ms[own]).tolist(), strict=True)
        )
        canvas.draw(element("path", class_=f"dots s{canvas.colours.get(name, 0)}", d=points))


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


def telemetry_panel(canvas: TimelineCanvas, telemetry: Telemetry, field: str, title: str, unit: str) -> None:
    """Draw one field of every card; of a large rack a band, its median and the suspects."""
    upper, lower = canvas.begin_panel(f"{title}, {unit}", 104)
    series = {entity: telemetry.series[entity, field] for entity in telemetry.entities(field)}
    if not series:
        canvas.draw_missing(upper, telemetry.problem or f"the telemetry has no {field}")
        return
    low = min(float(np.nanmin(card.low)) for card in series.values())
    high = max(float(np.nanmax(card.high)) for card in series.values())
    y, ticks = linear(low, high, lower, upper)
    canvas.draw_y_axis(y, ticks)
    shown, quantity = list(series), title.split(maxsplit=1)[0]
    if len(series) > COLOURS:
        shown = [name for name in canvas.suspects if name in series][:_MOST_SUSPECTS]
        _draw_band(canvas, list(series.values()), y, quantity, unit)
    for entity in shown:
        card = series[entity]
        canvas.draw(_low_high_line(canvas, card, y, f"line thin s{canvas.colours.get(entity, 0)}"))
        canvas.add_readout(f"{entity} {quantity.lower()}", unit, card.mean)


def _low_high_line(canvas: TimelineCanvas, card: BinnedSeries, y: Scale, classes: str) -> Markup:
    """Draw a line through the lowest and highest value of every bin, so that no peak is lost."""
    x = np.repeat(canvas.bin_centres, 2)
    values = np.column_stack([card.low, card.high]).ravel()
    known = np.isfinite(values)
    x, values = x[known], values[known]
    keep = np.concatenate([[True], (np.diff(values) != 0) | (np.diff(x) != 0)])
    return polyline(x[keep], y.places(values[keep]), classes, reach=joining_distance(card.mean))


def _draw_band(
    canvas: TimelineCanvas, cards: Sequence[BinnedSeries], y: Scale, quantity: str, unit: str
) -> None:
    means = np.array([card.mean for card in cards])
    known = np.isfinite(means).any(axis=0)
    low, high, median = np.full(BINS, np.nan), np.full(BINS, np.nan), np.full(BINS, np.nan)
    low[known] = np.nanmin(np.array([card.low for card in cards])[:, known], axis=0)
    high[known] = np.nanmax(np.array([card.high for card in cards])[:, known], axis=0)
    median[known] = np.nanmedian(means[:, known], axis=0)
    x = canvas.bin_centres[known]
    around = np.concatenate([y.places(high[known]), y.places(low[known])[::-1]])
    canvas.draw(polyline(np.concatenate([x, x[::-1]]), around, "band"))
    canvas.draw(polyline(x, y.places(median[known]), "line all"))
    for name, values in (("median", median), ("least", low), ("greatest", high)):
        canvas.add_readout(f"{quantity} {name}", unit, values)


def throttle_panel(canvas: TimelineCanvas, telemetry: Telemetry) -> None:
    """Draw a row per card with the times in which it was throttled."""
    entities = telemetry.entities("clock_event_reasons")
    upper, _ = canvas.begin_panel("Throttling (clock event reasons & 0xE8)", 0)
    if not entities:
        canvas.draw_missing(upper, telemetry.problem or "the telemetry has no clock_event_reasons")
        return
    bits = {entity: _throttle_bits(telemetry.series[entity, "clock_event_reasons"]) for entity in entities}
    throttled = [entity for entity in entities if bits[entity].any()]
    shown = throttled if len(entities) > COLOURS else entities
    canvas.y = upper
    for entity in shown[:_MOST_THROTTLE_ROWS]:
        canvas.draw(label(LEFT - 8, canvas.y + 9, entity.removeprefix("/")[-11:], "tick small", "end"))
        canvas.draw(rect((LEFT, canvas.y + 1, RIGHT - LEFT, _ROW_HEIGHT - 3), "throttle-row"))
        _draw_throttling(canvas, entity, bits[entity])
        canvas.y += _ROW_HEIGHT
        if entity in throttled:
            values = bits[entity].tolist()
            canvas.readout.append({"name": f"{entity} throttle", "unit": "bits", "reach": 0, "v": values})
    rest = len(shown) - _MOST_THROTTLE_ROWS
    more = f"; {rest} more did" if rest > 0 else ""
    note = f"{len(entities) - len(throttled)} of {len(entities)} cards never throttled{more}"
    canvas.draw(label(LEFT, canvas.y + 12, note, "panel-note"))
    canvas.y += 24


def _throttle_bits(card: BinnedSeries) -> NDArray[np.int64]:
    """Return the throttle bits of every bin; a bin without a sample has those of the last sample nearby."""
    known = np.where(np.isfinite(card.mean), np.arange(BINS), -1)
    last = np.maximum.accumulate(known)
    near = (last >= 0) & (np.arange(BINS) - last <= joining_distance(card.mean) / BIN_WIDTH)
    return np.where(near, card.bits[last] & _THROTTLE_MASK, 0)


def _draw_throttling(canvas: TimelineCanvas, entity: str, bits: NDArray[np.int64]) -> None:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], bits, [0]])))
    for start, stop in zip(edges.tolist(), edges[1:].tolist(), strict=False):
        value = int(bits[start])
        if value:
            names = ", ".join(name for bit, name in THROTTLE_BITS.items() if value & bit)
            box = (LEFT + start * BIN_WIDTH, canvas.y, max(2.0, (stop - start) * BIN_WIDTH), _ROW_HEIGHT - 1)
            canvas.draw(rect(box, "throttle-mark", f"{entity}: {names}"))


def timeline_legend(
    canvas: TimelineCanvas, telemetry: Telemetry, loads: Sequence[Latencies]
) -> list[tuple[str, str]]:
    """Return class and text of the timeline's lines."""
    entities = {entity for entity, _ in telemetry.series}
    items = []
    if sum(len(part.at_ns) for part in loads) > MOST_DOTS:
        items += [("line all", "TTFT P50"), ("line p99", "TTFT P99 of each bin")]
    else:
        entities |= {name for part in loads for name in part.engines}
    names = sorted(entities)
    if len(names) > COLOURS:
        items.append(("band-line", f"{len(names)} cards, least to greatest, and median"))
        names = [name for name in canvas.suspects if name in entities][:_MOST_SUSPECTS]
    return [*items, *((f"line s{canvas.colours.get(name, 0)}", clip(name, 60)) for name in names)]
