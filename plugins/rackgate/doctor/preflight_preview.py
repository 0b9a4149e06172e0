"""What preflight would measure now, from what was examined: the probes that cost nothing more."""

from __future__ import annotations

import time

from rackgate.doctor.examination import Examination
from rackgate.nouns.measurement import ProbeResults, Reason, missing, truth
from rackgate.preflight.card_memory import unaccounted_memory
from rackgate.preflight.cards import probe_readings
from rackgate.preflight.kernel_events import probe_events
from rackgate.preflight.nodes import measured_cards, measured_hosts


def measured_now(seen: Examination, profile: str) -> ProbeResults:
    """Return measurements by (metric, entity), as far as the examination goes."""
    found: ProbeResults = {}
    for node in seen.target.nodes:
        if node.name in seen.readings:
            readings, listed = seen.readings[node.name]
            found |= measured_cards(node, readings, listed)
    found |= measured_hosts(seen.target, seen.facts, firmware=seen.firmware)
    books = {name: book for name, (book, _) in seen.logs.items()}
    problems = {name: problem for name, (_, problem) in seen.logs.items()}
    found |= probe_events(books, problems, time.perf_counter_ns(), profile)
    for name, readings in seen.chassis.items():
        found |= probe_readings(readings, [name])
    for entity, engine in seen.engines.items():
        if engine.refused or engine.answered:
            found["engine_reachable", entity] = truth(
                "engine_reachable", entity, engine.answered, engine.text, engine.cure
            )
        if engine.served is not None:
            found["model_served", entity] = truth("model_served", entity, engine.ok, engine.text, engine.cure)
        elif engine.unlisted:
            nothing = missing("model_served", entity, "bool", Reason.UNSUPPORTED, engine.text)
            found["model_served", entity] = nothing
    return found | unaccounted_memory(seen.target, found)
