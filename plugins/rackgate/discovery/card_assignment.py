"""Which cards an engine uses: its processes on the cards, else what its environment lets it see."""

from __future__ import annotations

from collections.abc import Mapping

from rackgate.discovery.machine import FoundCard, Service


def cards_by_engine(
    engines: tuple[Service, ...],
    cards: tuple[FoundCard, ...],
    busy: Mapping[int, frozenset[int]],
    parents: Mapping[int, int],
) -> dict[int, tuple[int, ...]]:
    """Return the cards' indices by the engine's port; an engine of which nothing tells has no entry.

    `busy` are the processes on each card, `parents` the parent of each process. A card goes to one engine.
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
    return tuple(
        sorted(
            index
            for index, processes in busy.items()
            if any(_descends(one, engine.pid, parents) for one in processes)
        )
    )


def _descends(process: int, ancestor: int, parents: Mapping[int, int]) -> bool:
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
