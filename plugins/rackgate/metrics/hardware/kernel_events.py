"""Metrics of kernel log events during a load, without those that our own faults cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rackgate.metrics.hardware.load_window import measurement_of, no_telemetry, window_of
from rackgate.metrics.metric import Register
from rackgate.metrics.observation import Observation
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.slo import ONE_VALUE, Slo
from rackgate.nouns.verdict import Verdict
from rackgate.telemetry.kernel.window_events import judged_events, unread, words_of
from rackgate.telemetry.kernel.xid import JudgedEvent, symptom_of
from rackgate.telemetry.window_findings import Finding

_SHOWN = 3


def xids_failed(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """XIDs of class FAIL during the load, our faults' left out; of a node, those of no declared card."""
    return _xids(observation, slo, entity, Verdict.FAIL)


def xids_warned(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """XIDs of class WARN during the load, our faults' left out; of a node, those of no declared card."""
    return _xids(observation, slo, entity, Verdict.WARN)


def kernel_events_failed(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Other events of class FAIL in a node's kernel log during the load: reboot, killed process, driver."""
    return _others(observation, slo, entity, Verdict.FAIL)


def kernel_events_warned(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Other events of class WARN in a node's kernel log during the load: PCIe, memory, network, driver."""
    return _others(observation, slo, entity, Verdict.WARN)


def _xids(observation: Observation, slo: Slo, entity: str, counted: Verdict) -> Measurement:
    # A card whose address is declared has a row of its own.
    cards = [card.name for card in observation.target.cards if card.node == entity and not card.pci]
    return _counted(observation, slo, entity, [entity, *cards], counted, of_card=True)


def _others(observation: Observation, slo: Slo, entity: str, counted: Verdict) -> Measurement:
    cards = [card.name for card in observation.target.cards if card.node == entity]
    return _counted(observation, slo, entity, [entity, *cards], counted, of_card=False)


def _counted(
    observation: Observation,
    slo: Slo,
    entity: str,
    names: Iterable[str],
    counted: Verdict,
    *,
    of_card: bool,
) -> Measurement:
    window = window_of(observation, slo, entity)
    table = observation.telemetry
    if isinstance(window, Measurement) or table is None:
        return window if isinstance(window, Measurement) else no_telemetry(slo, entity)
    judged = judged_events(
        table, names, window, observation.target, faults=observation.faults, profile=observation.profile
    )
    mine = [one for one in judged if one.of_card is of_card]
    chosen = [one for one in mine if one.verdict is counted]
    if chosen:
        found = measurement_of(
            slo, entity, Finding(value=float(len(chosen)), count=len(chosen), detail=words_of(chosen, window))
        )
        return replace(found, symptoms=tuple(symptom_of(one) for one in chosen[:_SHOWN]))
    node = observation.target.node_of(entity) or entity
    gap = unread(table, node, window, round(observation.sample_gap_s * 1e9))
    if gap is not None:
        return missing(slo.metric, entity, slo.unit, *gap)
    return _undecided(slo, entity, mine, window) or measurement_of(
        slo, entity, Finding(value=0.0, count=1, detail="")
    )


def _undecided(
    slo: Slo, entity: str, judged: Iterable[JudgedEvent], window: tuple[int, int]
) -> Measurement | None:
    unknown = [one for one in judged if one.verdict is Verdict.UNKNOWN]
    if not unknown:
        return None
    return missing(slo.metric, entity, slo.unit, Reason.UNSUPPORTED, words_of(unknown, window))


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    for function in (xids_failed, xids_warned, kernel_events_failed, kernel_events_warned):
        register(
            function.__name__,
            "events",
            function,
            statistics=ONE_VALUE,
            windows=("load",),
            needs_load=True,
            inputs=("kernel_log",),
            layer="driver" if function.__name__.startswith("kernel") else "",
        )
