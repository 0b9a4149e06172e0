"""Metrics of the XIDs that came during a load, those of our own faults left out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rackgate.measurement import Measurement, Reason, missing
from rackgate.metrics.metric import ONE_VALUE
from rackgate.telemetry.card_checks import Finding
from rackgate.telemetry.event_book import events_of
from rackgate.telemetry.load_window import measurement_of, no_telemetry, window_of
from rackgate.telemetry.xid import explained_by, judge_events, symptom_of
from rackgate.verdict import Verdict

if TYPE_CHECKING:
    from rackgate.metrics.metric import Register
    from rackgate.observation import Observation
    from rackgate.slo import Slo
    from rackgate.telemetry.table import TelemetryTable
    from rackgate.telemetry.xid import JudgedEvent

__all__ = ["register_metrics"]

_SHOWN = 3


def xids_failed(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """XIDs of class FAIL during the load, our faults' left out; of a node, those of no declared card."""
    return _events(observation, slo, entity, Verdict.FAIL)


def xids_warned(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """XIDs of class WARN during the load, our faults' left out; of a node, those of no declared card."""
    return _events(observation, slo, entity, Verdict.WARN)


def _events(observation: Observation, slo: Slo, entity: str, counted: Verdict) -> Measurement:
    window = window_of(observation, slo, entity)
    table = observation.telemetry
    if isinstance(window, Measurement) or table is None:
        return window if isinstance(window, Measurement) else no_telemetry(slo, entity)
    # A row that holds in sign-off alone is judged by sign-off's classes.
    profile = "signoff" if slo.profiles and set(slo.profiles) <= {"signoff", "strict"} else "ci"
    # A card whose address is declared has a row of its own.
    cards = [card.name for card in observation.target.cards if card.node == entity and not card.pci]
    judged = [one for name in (entity, *cards) for one in _judged(observation, table, name, window, profile)]
    chosen = [one for one in judged if one.verdict is counted]
    if chosen:
        words = "; ".join(_words(one) for one in chosen[:_SHOWN])
        found = measurement_of(
            slo, entity, Finding(value=float(len(chosen)), count=len(chosen), detail=words)
        )
        return replace(found, symptoms=tuple(symptom_of(one) for one in chosen[:_SHOWN]))
    node = observation.target.node_of(entity) or entity
    watch = table.series(node, "xid_watch")
    if not len(watch.present):
        reason, detail = watch.why_missing
        return missing(
            slo.metric, entity, slo.unit, reason, f"the kernel log of {node} is not read: {detail}"
        )
    unknown = [one for one in judged if one.verdict is Verdict.UNKNOWN]
    if unknown:
        return missing(slo.metric, entity, slo.unit, Reason.UNSUPPORTED, _words(unknown[0]))
    return measurement_of(slo, entity, Finding(value=0.0, count=1, detail=""))


def _judged(
    observation: Observation, table: TelemetryTable, entity: str, window: tuple[int, int], profile: str
) -> tuple[JudgedEvent, ...]:
    start_us, end_us = (moment // 1000 for moment in window)
    events = [one for one in events_of(table, entity) if start_us <= (one.line.boot_us or 0) <= end_us]
    hit = {
        name: tuple(engine.cards)
        for engine in observation.target.engines
        for name in (engine.name, engine.entity)
    }
    explains = explained_by(observation.faults, hit, 0)
    return judge_events(events, card_of={entity: entity}, injected=explains, profile=profile)


def _words(judged: JudgedEvent) -> str:
    event = judged.event
    kind = "XID" if event.kind == "xid" else "SXid"
    return f"{kind} {event.code} ({judged.meaning}). {judged.next_step}"


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    for name, function in (("xids_failed", xids_failed), ("xids_warned", xids_warned)):
        register(
            name,
            "events",
            function,
            statistics=ONE_VALUE,
            windows=("load",),
            needs_load=True,
            inputs=("kernel_log",),
        )
