"""The run's time axis, its stages and its fault windows, in monotonic nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

from rackgate_reports.evidence import RunEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A named stretch of time."""

    name: str
    start_ns: int
    stop_ns: int
    detail: str = ""


def time_range_ns(run: RunEvidence) -> tuple[int, int] | None:
    """Return the first and last timestamp of records, loads and telemetry; None without any."""
    moments = [record["t_ns"] for record in run.records if isinstance(record.get("t_ns"), int)]
    for load in run.of("load"):
        moments += [load[name] for name in ("start_ns", "end_ns") if isinstance(load.get(name), int)]
    moments += run.telemetry_range_ns() or ()
    return (min(moments), max(moments)) if moments and max(moments) > min(moments) else None


def stage_windows(run: RunEvidence, stop_ns: int) -> tuple[Window, ...]:
    """Return the stages in order of time; a stage that never ended lasts to `stop_ns`."""
    begun: dict[str, int] = {}
    windows: list[Window] = []
    for record in run.of("stage"):
        stage, moment = str(record.get("stage")), record.get("t_ns")
        if not isinstance(moment, int):
            continue
        if record.get("phase") == "begin":
            begun[stage] = moment
        elif stage in begun:
            windows.append(Window(name=stage, start_ns=begun.pop(stage), stop_ns=moment))
    open_ends = [Window(name=stage, start_ns=start, stop_ns=stop_ns) for stage, start in begun.items()]
    return tuple(sorted([*windows, *open_ends], key=lambda window: window.start_ns))


def fault_windows(run: RunEvidence, stop_ns: int) -> tuple[Window, ...]:
    """Return each fault from injection to proven healing; a fault never healed lasts to `stop_ns`."""
    begun: dict[tuple[str, str], int] = {}
    windows: list[Window] = []
    for record in run.of("fault"):
        key, moment = (str(record.get("fault")), str(record.get("entity"))), record.get("t_ns")
        step = record.get("moment")
        if not isinstance(moment, int):
            continue
        if step == "inject":
            begun[key] = moment
        elif step == "prove_healed" and record.get("ok") and key in begun:
            windows.append(_fault_window(key, begun.pop(key), moment, "healed"))
    lasting = [_fault_window(key, start, stop_ns, "never proven healed") for key, start in begun.items()]
    return tuple(sorted([*windows, *lasting], key=lambda window: window.start_ns))


def _fault_window(key: tuple[str, str], start_ns: int, stop_ns: int, detail: str) -> Window:
    return Window(name=" ".join(key), start_ns=start_ns, stop_ns=stop_ns, detail=detail)
