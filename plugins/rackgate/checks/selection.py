"""Selection of nodes and cards by --rack-only and --rack-exclude."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rackgate.nouns.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """`target` without what was left out; `left_out` says why, by card (by engine where there are none)."""

    target: Target
    left_out: Mapping[str, str] = field(default_factory=dict)


def unknown_entities(target: Target, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that the target does not declare, and all that it does."""
    known = {node.name for node in target.nodes} | {card.name for card in target.cards}
    known |= {engine.name for engine in target.engines}
    return tuple(name for name in names if name not in known), tuple(sorted(known))


def select(target: Target, *, only: Sequence[str], exclude: Sequence[str]) -> Selection:
    """Return the target narrowed to what is named; an engine goes with any of its cards."""
    if not only and not exclude:
        return Selection(target=target)

    def why_not(*names: str) -> str:
        if any(name in exclude for name in names):
            return "excluded"
        return "" if not only or any(name in only for name in names) else "not asked for"

    engines = tuple(one for one in target.engines if not why_not(one.name, *one.nodes, *one.cards))
    nodes = tuple(
        replace(
            node,
            cards=tuple(
                card for card in node.cards if not why_not(node.name, card.name, *_on(card.name, target))
            ),
        )
        for node in target.nodes
    )
    stays = {node.name for node in target.nodes if not node.cards and not why_not(node.name)}
    stays |= {name for engine in engines for name in engine.nodes}
    kept = replace(
        target, nodes=tuple(node for node in nodes if node.cards or node.name in stays), engines=engines
    )
    units = [card.name for card in target.cards] or [engine.entity for engine in target.engines]
    left = {card.name for card in kept.cards} or {engine.entity for engine in kept.engines}
    left_out = {unit: _reason(unit, exclude, target) for unit in units if unit not in left}
    return Selection(target=kept, left_out=left_out)


def _on(card: str, target: Target) -> tuple[str, ...]:
    return tuple(engine.name for engine in target.engines if card in engine.cards)


def _reason(unit: str, exclude: Sequence[str], target: Target) -> str:
    names = {unit, target.node_of(unit), *_on(unit, target)}
    names |= {engine.name for engine in target.engines if engine.entity == unit}
    return "excluded" if names & set(exclude) else "not asked for"
