"""Assignment of cards to engines: by the processes on a card, else by the engine's environment."""

from __future__ import annotations

from collections.abc import Mapping

from rackgate.discovery.machine import FoundCard, Service


def cards_by_engine(
    engines: tuple[Service, ...],
    cards: tuple[FoundCard, ...],
    busy: Mapping[int, frozenset[int]],
    parents: Mapping[int, int],
) -> dict[int, tuple[int, ...]]:
    """Return card indices by the port of their engine; an engine without a known card has no entry.

    `busy` holds the processes on each card, `parents` the parent of each process. A card has one engine.
    """
    found: dict[int, tuple[int, ...]] = {}
    taken: set[int] = set()
    for engine in engines:
        mine = _by_process(engine, busy, parents) or _by_environment(engine, cards)
        free = tuple(dict.fromkeys(index for index in mine if index not in taken))
        if free:
            found[engine.port] = free
            taken.update(free)
    return found


def _by_process(
    engine: Service, busy: Mapping[int, frozenset[int]], parents: Mapping[int, int]
) -> tuple[int, ...]:
    if engine.pid is None:
        return ()
    own = [
        index
        for index, processes in busy.items()
        if any(_is_descendant(process, engine.pid, parents) for process in processes)
    ]
    return tuple(sorted(own))


def _is_descendant(process: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    seen: set[int] = set()
    while process not in seen:
        if process == ancestor:
            return True
        seen.add(process)
        process = parents.get(process, 0)
    return False


def _by_environment(engine: Service, cards: tuple[FoundCard, ...]) -> tuple[int, ...]:
    if engine.visible is None:
        return ()
    known = {str(card.index): card.index for card in cards}
    known |= {card.uuid: card.index for card in cards if card.uuid}
    return tuple(known[name] for name in engine.visible if name in known)
