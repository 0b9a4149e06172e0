"""Peers: the cards and engines with which a card or an engine is compared."""

from __future__ import annotations

from rackgate.nouns.slo import Slo
from rackgate.nouns.target import EngineSpec, Target

PEER_METRICS = frozenset(
    {
        *("temperature_deviation_c", "sm_clock_to_peers", "power_deviation"),
        *("ttft_to_peers", "tpot_to_peers"),
    }
)
"""Metrics that compare a card, or an engine of one card, with the median of its peers."""

LEAST_PEERS = 2
"""With fewer than two peers it is open which card is the outlier."""

_OF_ENGINES = ("ttft_to_peers", "tpot_to_peers")
_UNDER_ENGINES = "memory_in_use_mib"


def peers_of(entity: str, target: Target) -> tuple[str, ...]:
    """Return the other cards of the same kind, or the other engines on one such card each.

    Cards are of one kind if they have the same SKU, and engines of the same model and number of cards on
    them.
    """
    kinds = {card.name: _kind(card.name, target) for card in target.cards}
    if entity not in kinds:
        kinds = {
            engine.entity: _kind(engine.cards[0], target)
            for engine in target.engines
            if len(engine.cards) == 1
        }
    if entity not in kinds:
        return ()
    return tuple(name for name, kind in kinds.items() if kind == kinds[entity] and name != entity)


def too_few_peers(row: Slo, entity: str, target: Target) -> str:
    """Return that the target declares too few peers of the entity; empty if there are enough."""
    if row.metric not in PEER_METRICS and not (row.metric == _UNDER_ENGINES and under_engine(entity, target)):
        return ""
    engine = next((one for one in target.engines if one.entity == entity), None)
    if row.metric in _OF_ENGINES and engine is not None and len(engine.cards) != 1:
        return f"declared: engine {engine.name} is not one of a single card, which are compared"
    found = len(peers_of(entity, target))
    if found >= LEAST_PEERS:
        return ""
    return f"target {target.name} declares {found} like {entity}: one is compared with at least two others"


def under_engine(card: str, target: Target) -> bool:
    """Return whether an engine is on the card before a run begins: its memory is not free then."""
    return any(card in engine.cards for engine in target.engines if engine.runs_already)


def _kind(card: str, target: Target) -> tuple[object, ...]:
    sku = next(one.sku for one in target.cards if one.name == card)
    engine: EngineSpec | None = next((one for one in target.engines if card in one.cards), None)
    return (sku, engine.model, len(engine.cards)) if engine is not None else (sku, "", 0)
