"""Unaccounted memory of cards: in use before engines start, or above the peers' median."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from types import MappingProxyType

from rackgate.nouns.measurement import Measurement, ProbeResults, Reason, missing
from rackgate.nouns.peers import LEAST_PEERS, peers_of, under_engine
from rackgate.nouns.target import Target

MEMORY_IN_USE = "memory_in_use_mib"


def unaccounted_memory(
    target: Target,
    probes: Mapping[tuple[str, str], Measurement],
    before: Mapping[tuple[str, str], Measurement] = MappingProxyType({}),
) -> ProbeResults:
    """Return for each card that was read the memory in use that no engine of the target accounts for.

    `before` is what was read before this run started engines, and is all that counts where it did. Under
    an engine that was there already the median of the peers is the engine's; a peer whose own engine does
    not answer holds nothing to compare with.
    """
    found: ProbeResults = {}
    answering = {
        card
        for engine in target.engines
        for card in engine.cards
        if _value(probes, "engine_reachable", engine.entity)
    }
    for card in target.cards:
        used = probes.get((MEMORY_IN_USE, card.name))
        if not under_engine(card.name, target):
            used = before.get((MEMORY_IN_USE, card.name), used)
        elif used is not None and used.value is not None:
            peers = [one for one in peers_of(card.name, target) if one in answering]
            held = [one for peer in peers if (one := _value(probes, MEMORY_IN_USE, peer)) is not None]
            used = _beyond(used, used.value, held)
        if used is not None:
            found[MEMORY_IN_USE, card.name] = used
    return found


def _beyond(used: Measurement, value_mib: float, held_mib: list[float]) -> Measurement:
    if len(held_mib) < LEAST_PEERS:
        text = f"{value_mib:.0f} MiB are in use, and {len(held_mib)} peers say what their engines hold"
        return missing(used.metric, used.entity, used.unit, Reason.TOO_FEW, text)
    usual = median(held_mib)
    text = f"{value_mib:.0f} MiB are in use, {usual:.0f} MiB is the median of {len(held_mib)} peers"
    return replace(used, value=max(0.0, value_mib - usual), count=len(held_mib), detail=text)


def _value(probes: Mapping[tuple[str, str], Measurement], metric: str, entity: str) -> float | None:
    measured = probes.get((metric, entity))
    return None if measured is None else measured.value
