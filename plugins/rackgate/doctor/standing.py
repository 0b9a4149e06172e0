"""What preflight would measure now, from what was examined: the probes that cost nothing more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rackgate.measurement import Measurement, Reason, missing
from rackgate.telemetry.card_probes import probe_readings
from rackgate.telemetry.driver_probes import probe_domains, probe_driver
from rackgate.telemetry.inventory_probes import probe_holders, probe_pins
from rackgate.telemetry.node_probes import probe_events, probe_hosts

if TYPE_CHECKING:
    from rackgate.doctor.examination import Examination
    from rackgate.target import Card
    from rackgate.telemetry.reading import Reading

__all__ = ["measured_now"]

Probes = dict[tuple[str, str], Measurement]


def measured_now(seen: Examination) -> Probes:
    """Return measurements by (metric, entity), as far as the examination goes."""
    nodes = {node.name: node for node in seen.target.nodes}
    found: Probes = probe_hosts(seen.facts, {name: len(node.cards) for name, node in nodes.items()})
    for name, facts in seen.facts.items():
        if facts:
            found |= probe_driver(nodes[name], facts) | probe_pins(nodes[name], facts, {})
            found |= probe_holders(nodes[name], facts["driver_answer"])
    found |= probe_domains(seen.target.nodes, seen.facts)
    books = {name: book for name, (book, _) in seen.logs.items()}
    problems = {name: problem for name, (_, problem) in seen.logs.items()}
    found |= probe_events(books, problems, time.perf_counter_ns())
    for name, readings in seen.readings.items():
        for card in nodes[name].cards:
            found |= _card(card, readings)
    for name, readings in seen.chassis.items():
        found |= probe_readings(readings, [name])
    for entity, engine in seen.engines.items():
        if engine.refused:
            found["engine_reachable", entity] = _bool("engine_reachable", entity, engine.text)
        if engine.served is not None and not engine.ok:
            found["model_served", entity] = _bool("model_served", entity, engine.text)
        elif engine.unlisted:
            nothing = missing("model_served", entity, "bool", Reason.UNSUPPORTED, engine.text)
            found["model_served", entity] = nothing
    return found


def _card(card: Card, readings: tuple[Reading, ...]) -> Probes:
    mine = [one for one in readings if one.entity == card.name]
    if any(one.value is not None for one in mine):
        return probe_readings(mine, [card.name])
    if all(one.reason is Reason.ABSENT for one in mine):
        text = mine[0].detail if mine else "the source says nothing of this card"
        return {("card_present", card.name): _bool("card_present", card.name, text)}
    return {}


def _bool(metric: str, entity: str, detail: str) -> Measurement:
    return Measurement(
        metric=metric, entity=entity, value=0.0, unit="bool", count=1, detail=detail, source="probe"
    )
