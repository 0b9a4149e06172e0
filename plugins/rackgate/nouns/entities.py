"""Names of what is judged: rack, nodes, cards, engines, pools and pairs, and the engines behind each."""

from __future__ import annotations

from rackgate.nouns.slo import Scope
from rackgate.nouns.target import EngineSpec, Target

_PAIRED = "+"


def pairs_of(target: Target) -> tuple[tuple[EngineSpec, EngineSpec], ...]:
    """Neighbouring engines of one node with one card each, or with none, two by two."""
    alike: dict[tuple[str, bool], list[EngineSpec]] = {
        (node.name, has_card): [] for node in target.nodes for has_card in (True, False)
    }
    for engine in target.engines:
        place = (engine.nodes[0], bool(engine.cards)) if len(engine.nodes) == 1 else ("", False)
        if len(engine.cards) <= 1 and place in alike:
            alike[place].append(engine)
    return tuple(
        pair for engines in alike.values() for pair in zip(engines[::2], engines[1::2], strict=False)
    )


def pair_name(first: EngineSpec, second: EngineSpec) -> str:
    """`node1/gpu0+gpu1`."""
    return f"{first.entity}{_PAIRED}{second.entity.split('/')[-1]}"


def entities_of(scope: Scope, target: Target) -> tuple[str, ...]:
    """Names of everything that a row of this scope is judged on."""
    if scope is Scope.RACK:
        return ("rack",)
    if scope is Scope.NODE:
        return tuple(node.name for node in target.nodes)
    if scope is Scope.CARD:
        return tuple(card.name for card in target.cards)
    if scope is Scope.POOL:
        return target.pools
    if scope is Scope.PAIR:
        return tuple(pair_name(*pair) for pair in pairs_of(target))
    return tuple(engine.entity for engine in target.engines)


def members_of(entity: str, target: Target) -> frozenset[str]:
    """Return the entities of the engines behind a rack, pool, node, pair, card or engine."""
    if entity == "rack":
        return frozenset(engine.entity for engine in target.engines)
    for first, second in pairs_of(target) if _PAIRED in entity else ():
        if entity == pair_name(first, second):
            return frozenset({first.entity, second.entity})
    return frozenset(
        engine.entity
        for engine in target.engines
        if entity in (engine.entity, engine.name, engine.pool, *engine.nodes, *engine.cards)
    )
