"""Latency, temperature, power and throttling over one time axis, with stages and faults marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from rackgate.nouns.slo import STAGES
from rackgate_reports.charts.scales import Scale, clock_ticks
from rackgate_reports.charts.svg import element, label, rect, rule
from rackgate_reports.charts.timeline_canvas import BINS, LEFT, RIGHT, WIDTH, TimelineCanvas
from rackgate_reports.charts.timeline_panels import (
    latency_panel,
    telemetry_panel,
    throttle_panel,
    timeline_legend,
)
from rackgate_reports.digest.latency import Latencies
from rackgate_reports.digest.telemetry import THROTTLE_BITS, read_telemetry
from rackgate_reports.digest.time_axis import Window, fault_windows, stage_windows, time_range_ns
from rackgate_reports.evidence import RunEvidence
from rackgate_reports.formatting import duration, stage_name

_MOST_FAULTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The timeline, class and text of its legend, and the `data` that the page's cursor reads.

    `problem` says why there is no timeline, `telemetry_problem` which telemetry is missing.
    """

    svg: str = ""
    legend: Sequence[tuple[str, str]] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    telemetry_problem: str = ""


def timeline_of(
    run: RunEvidence, loads: Sequence[Latencies], colours: Mapping[str, int], suspects: Sequence[str]
) -> Timeline:
    """Draw the timeline of a run; a large rack is a band, in which `suspects` have lines of their own."""
    span = time_range_ns(run)
    if span is None:
        return Timeline(problem="the records carry no moments in time")
    start_ns, stop_ns = span
    length_s = (stop_ns - start_ns) / 1e9
    scale = Scale(low=0.0, high=length_s, start=LEFT, stop=RIGHT)
    canvas = TimelineCanvas(x=scale, start_ns=start_ns, colours=colours, suspects=suspects)
    telemetry = read_telemetry(run, start_ns, stop_ns, BINS)
    stages, faults = stage_windows(run, stop_ns), fault_windows(run, stop_ns)
    _stage_row(canvas, stages)
    top = canvas.y
    _fault_row(canvas, faults)
    latency_panel(canvas, loads, stop_ns)
    telemetry_panel(canvas, telemetry, "temperature_c", "Temperature", "°C")
    telemetry_panel(canvas, telemetry, "power_w", "Power per card", "W")
    throttle_panel(canvas, telemetry)
    background = _bands(canvas, stages, faults, top)
    cursor = element("path", class_="cursor", d=f"M0 {top:.0f}V{canvas.y:.0f}", visibility="hidden")
    _time_axis(canvas, length_s)
    return Timeline(
        svg=element(
            "svg",
            *background,
            *canvas.parts,
            cursor,
            class_="timeline",
            viewBox=f"0 0 {WIDTH} {canvas.y:.0f}",
            role="img",
            aria_label=f"Latency, temperature, power and throttling over {duration(length_s)}",
        ),
        legend=timeline_legend(canvas, telemetry, loads),
        data={
            "x": [LEFT, RIGHT],
            "width": WIDTH,
            "length": round(length_s, 3),
            "bins": BINS,
            "series": canvas.readout,
            "bits": {str(bit): name for bit, name in THROTTLE_BITS.items()},
            "windows": [
                [window.name, (window.start_ns - start_ns) / 1e9, (window.stop_ns - start_ns) / 1e9]
                for window in (*stages, *faults)
            ],
        },
        telemetry_problem=telemetry.problem,
    )


def _stage_row(canvas: TimelineCanvas, stages: Sequence[Window]) -> None:
    for index, stage in enumerate(stages):
        left, right = canvas.x_of(stage.start_ns), canvas.x_of(stage.stop_ns)
        title = f"{stage_name(stage.name)}: {duration((stage.stop_ns - stage.start_ns) / 1e9)}"
        canvas.draw(rect((left, 0, max(1.0, right - left - 1), 20), f"stage-band alt{index % 2}", title))
        name, number = stage_name(stage.name), STAGES.index(stage.name) if stage.name in STAGES else "·"
        if right - left > 6.4 * len(name) + 8:
            canvas.draw(label((left + right) / 2, 14, name, "stage-label", "middle"))
        elif right - left > 14:
            canvas.draw(label((left + right) / 2, 14, str(number), "stage-label", "middle"))
    canvas.y = 24


def _fault_row(canvas: TimelineCanvas, faults: Sequence[Window]) -> None:
    if not faults:
        return
    for fault in faults[:_MOST_FAULTS]:
        left, right = canvas.x_of(fault.start_ns), canvas.x_of(fault.stop_ns)
        seconds = duration((fault.stop_ns - fault.start_ns) / 1e9)
        title = f"{fault.name}, {seconds}, {fault.detail}"
        canvas.draw(rect((left, canvas.y, max(2.0, right - left), 5), "fault-mark", title))
    first = faults[0]
    text = f"Fault: {first.name}" if len(faults) == 1 else f"{len(faults)} faults"
    where = (canvas.x_of(first.start_ns) + canvas.x_of(faults[-1].stop_ns)) / 2
    anchor = "end" if where > 0.8 * WIDTH else "middle"
    place = canvas.x_of(faults[-1].stop_ns) if anchor == "end" else where
    canvas.draw(label(place, canvas.y + 16, text, "fault-label", anchor))
    canvas.y += 20


def _bands(
    canvas: TimelineCanvas, stages: Sequence[Window], faults: Sequence[Window], top: float
) -> list[Markup]:
    """Return what stands behind the panels: a shade for each fault, the first edge of each stage."""
    shades = []
    for fault in faults[:_MOST_FAULTS]:
        left, right = canvas.x_of(fault.start_ns), canvas.x_of(fault.stop_ns)
        shades.append(rect((left, top, max(1.5, right - left), canvas.y - top), "fault-band"))
    edges = [canvas.x_of(stage.start_ns) for stage in stages]
    return [*shades, *(rule(x, top, x, canvas.y, "stage-edge") for x in edges)]


def _time_axis(canvas: TimelineCanvas, length_s: float) -> None:
    canvas.draw(rule(LEFT, canvas.y, RIGHT, canvas.y, "axis"))
    for seconds, text in clock_ticks(length_s):
        x = canvas.x.place(seconds)
        canvas.draw(rule(x, canvas.y, x, canvas.y + 4, "axis"))
        canvas.draw(label(x, canvas.y + 17, text, "tick", "middle"))
    canvas.y += 24
