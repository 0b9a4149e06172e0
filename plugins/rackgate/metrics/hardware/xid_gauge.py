"""The exporter's gauge of the last XID: the only source of XIDs on a rack without kernel logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rackgate.metrics.hardware.load_window import measurement_of, no_telemetry, window_of
from rackgate.metrics.metric import Register
from rackgate.metrics.observation import Observation
from rackgate.nouns.measurement import Measurement, Symptom
from rackgate.nouns.slo import ONE_VALUE, Slo
from rackgate.telemetry.kernel.event_history import events_of
from rackgate.telemetry.kernel.kernel_log import event_of
from rackgate.telemetry.kernel.log_line import LogLine
from rackgate.telemetry.kernel.window_events import explanation, unread
from rackgate.telemetry.kernel.xid import xid_class
from rackgate.telemetry.table import TelemetryTable
from rackgate.telemetry.window_findings import Finding, codes_that_came


def last_xid_changes(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """XIDs that the exporter's gauge of the last one showed during the load and that no kernel log told."""
    window = window_of(observation, slo, entity)
    table = observation.telemetry
    if isinstance(window, Measurement) or table is None:
        return window if isinstance(window, Measurement) else no_telemetry(slo, entity)
    node = observation.target.node_of(entity) or entity
    heard = unread(table, node, window, round(observation.sample_gap_s * 1e9)) is None
    came = codes_that_came(table.series(entity, "last_xid"), *window)
    if isinstance(came, Finding):
        if came.value is None and heard:
            text = f"the kernel log of {node} was read, its XIDs are rows of their own; {came.detail}"
            came = replace(came, value=0.0, count=1, reason=None, detail=text)
        return measurement_of(slo, entity, came)
    explains = explanation(observation.target, observation.faults)
    told = _codes_told(table, (entity, node), window) if heard else frozenset()
    fresh = [
        code
        for at_ns, code in came
        if code not in told
        and not explains(event_of("xid", code, "", LogLine(text="", boot_us=at_ns // 1000), entity), entity)
    ]
    symptoms = tuple(
        Symptom(key=f"xid:{code}", seen=f"XID {code} on {entity}, by the gauge") for code in fresh
    )
    found = Finding(value=float(len(fresh)), count=1, detail=_words(fresh), symptoms=symptoms)
    return measurement_of(slo, entity, found)


def _codes_told(table: TelemetryTable, names: Sequence[str], window: tuple[int, int]) -> frozenset[int]:
    """Return the XIDs of the kernel log in a window (ns): they are judged by their class, elsewhere."""
    start_us, end_us = (moment // 1000 for moment in window)
    return frozenset(
        event.code
        for event in events_of(table, names)
        if event.code is not None and start_us <= (event.line.boot_us or 0) <= end_us
    )


def _words(codes: Sequence[int]) -> str:
    told = "; ".join(f"XID {code} ({xid_class(code).meaning})" for code in codes)
    note = "the last of perhaps several: the kernel log has the first and the cause"
    return f"{told}; {note}" if codes else ""


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    register(
        "last_xid_changes",
        "events",
        last_xid_changes,
        statistics=ONE_VALUE,
        windows=("load",),
        needs_load=True,
        inputs=("card:last_xid|kernel_log",),
        vendor="nvidia",
    )
