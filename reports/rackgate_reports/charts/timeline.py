"""Latency, temperature, power and throttling over one shared time axis, with stages and faults marked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rackgate.nouns.slo import STAGES
from rackgate_reports.charts.canvas import BINS, LEFT, RIGHT, WIDTH, Canvas
from rackgate_reports.charts.panels import latency_panel, legend, telemetry_panel, throttle_panel
from rackgate_reports.charts.scales import Scale, clock_ticks
from rackgate_reports.charts.svg import empty_chart, label, rect, rule
from rackgate_reports.digest.telemetry import THROTTLE_BITS, Telemetry, read_telemetry
from rackgate_reports.digest.time_axis import fault_windows, stage_windows, time_range_ns
from rackgate_reports.formatting import duration, escape, stage_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rackgate_reports.digest.latency import Latencies
    from rackgate_reports.digest.time_axis import Window
    from rackgate_reports.evidence import RunEvidence


def timeline_figure(
    run: RunEvidence, loads: Sequence[Latencies], colours: Mapping[str, int], suspects: Sequence[str]
) -> str:
    """Return the timeline of a run; `suspects` are entities to draw by themselves in a large rack."""
    span = time_range_ns(run)
    if span is None:
        return empty_chart("the records carry no moments in time")
    start_ns, stop_ns = span
    length_s = (stop_ns - start_ns) / 1e9
    scale = Scale(low=0.0, high=length_s, start=LEFT, stop=RIGHT)
    canvas = Canvas(x=scale, start_ns=start_ns, colours=colours, suspects=tuple(suspects))
    telemetry = read_telemetry(run, start_ns, stop_ns, BINS)
    stages, faults = stage_windows(run, stop_ns), fault_windows(run, stop_ns)
    _stage_row(canvas, stages)
    top = canvas.y
    _fault_row(canvas, faults)
    latency_panel(canvas, loads, stop_ns)
    telemetry_panel(canvas, telemetry, "temperature_c", ("Temperature", "°C"))
    telemetry_panel(canvas, telemetry, "power_w", ("Power per card", "W"))
    throttle_panel(canvas, telemetry)
    behind = _bands(canvas, stages, faults, top)
    bottom = canvas.y
    _time_axis(canvas, length_s)
    cursor = f'<path class="cursor" d="M0 {top:.0f}V{bottom:.0f}" visibility="hidden"/>'
    said = f"Latency, temperature, power and throttling over {escape(duration(length_s))}"
    return (
        f"{legend(canvas, telemetry, loads)}"
        '<div class="scroll" tabindex="0" role="group" aria-label="Timeline; arrow keys move the cursor">'
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {canvas.y:.0f}" role="img" aria-label="{said}">'
        f'{behind}{"".join(canvas.parts)}{cursor}</svg></div><div class="readout" hidden></div>'
        f"{_data(canvas, length_s, (*stages, *faults))}{_trouble(telemetry)}"
    )


def _data(canvas: Canvas, length_s: float, windows: Sequence[Window]) -> str:
    """Return what the cursor reads, as a block of JSON that is no script."""
    moments = [
        [window.name, (window.start_ns - canvas.start_ns) / 1e9, (window.stop_ns - canvas.start_ns) / 1e9]
        for window in windows
    ]
    body = {
        "x": [LEFT, RIGHT],
        "width": WIDTH,
        "length": round(length_s, 3),
        "bins": BINS,
        "series": canvas.readout,
        "bits": {str(bit): name for bit, name in THROTTLE_BITS.items()},
        "windows": moments,
    }
    text = json.dumps(body, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" class="timeline-data">{text}</script>'


def _trouble(telemetry: Telemetry) -> str:
    return f'<p class="note">Telemetry: {escape(telemetry.problem, 600)}.</p>' if telemetry.problem else ""


def _stage_row(canvas: Canvas, stages: Sequence[Window]) -> None:
    for index, stage in enumerate(stages):
        left, right = canvas.at(stage.start_ns), canvas.at(stage.stop_ns)
        title = f"{stage_name(stage.name)}: {duration((stage.stop_ns - stage.start_ns) / 1e9)}"
        canvas.parts.append(
            rect((left, 0, max(1.0, right - left - 1), 20), f"stage-band alt{index % 2}", title)
        )
        name = stage_name(stage.name)
        if right - left > 6.4 * len(name) + 8:
            canvas.parts.append(label((left + right) / 2, 14, name, "stage-label", "middle"))
        elif right - left > 14:
            canvas.parts.append(label((left + right) / 2, 14, _number(stage.name), "stage-label", "middle"))
    canvas.y = 24


def _number(stage: str) -> str:
    return str(STAGES.index(stage)) if stage in STAGES else "·"


def _fault_row(canvas: Canvas, faults: Sequence[Window]) -> None:
    if not faults:
        return
    for fault in faults[:60]:
        left, right = canvas.at(fault.start_ns), canvas.at(fault.stop_ns)
        seconds = duration((fault.stop_ns - fault.start_ns) / 1e9)
        canvas.parts.append(
            rect(
                (left, canvas.y, max(2.0, right - left), 5),
                "fault-mark",
                f"{fault.name}, {seconds}, {fault.detail}",
            )
        )
    first = faults[0]
    text = f"Fault: {first.name}" if len(faults) == 1 else f"{len(faults)} faults"
    where = (canvas.at(first.start_ns) + canvas.at(faults[-1].stop_ns)) / 2
    anchor = "end" if where > 0.8 * WIDTH else "middle"
    place = canvas.at(faults[-1].stop_ns) if anchor == "end" else where
    canvas.parts.append(label(place, canvas.y + 16, text, "fault-label", anchor))
    canvas.y += 20


def _bands(canvas: Canvas, stages: Sequence[Window], faults: Sequence[Window], top: float) -> str:
    height = canvas.y - top
    lines = [rule(canvas.at(w.start_ns), top, canvas.at(w.start_ns), canvas.y, "stage-edge") for w in stages]
    shades = [
        rect(
            (canvas.at(w.start_ns), top, max(1.5, canvas.at(w.stop_ns) - canvas.at(w.start_ns)), height),
            "fault-band",
        )
        for w in faults[:60]
    ]
    return "".join([*shades, *lines])


def _time_axis(canvas: Canvas, length_s: float) -> None:
    canvas.parts.append(rule(LEFT, canvas.y, RIGHT, canvas.y, "axis"))
    for seconds, text in clock_ticks(length_s):
        x = canvas.x.place(seconds)
        canvas.parts.append(rule(x, canvas.y, x, canvas.y + 4, "axis"))
        canvas.parts.append(label(x, canvas.y + 17, text, "tick", "middle"))
    canvas.y += 24
