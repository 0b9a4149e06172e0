"""Prognoses as people read them: what fares alike together, and what cures most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rackgate.doctor.prognosis import Outlook, Prognosis
from rackgate.nouns.slo import STAGES

_ORDER = (Outlook.FAIL, Outlook.UNKNOWN, Outlook.WARN, Outlook.RUN, Outlook.ABSENT, Outlook.UNSEEN)
_BAD = (Outlook.UNKNOWN, Outlook.FAIL)
_NOT_ASKED = (Outlook.ABSENT, Outlook.UNSEEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Rows of one stage whose entities fare alike. `whole` says that no entity of these rows fares otherwise.

    `scope` is what the entities are: cards, engines, nodes.
    """

    stage: str
    outlook: Outlook
    rows: tuple[str, ...]
    scope: str
    entities: tuple[str, ...]
    whole: bool
    because: str
    cure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """One thing to do, and the rows and checks that it would bring back."""

    text: str
    rows: tuple[str, ...]
    checks: int
    entities: tuple[str, ...]


def blocks(found: Iterable[Prognosis]) -> tuple[Block, ...]:
    """Return what fares alike for one reason, stage by stage, the bad news first."""
    per_row: dict[str, dict[tuple[Outlook, str, str], list[Prognosis]]] = {}
    for one in found:
        # Of one cure, and of what is not asked at all, the first reason speaks for all entities of a row.
        because = "" if one.cure or one.outlook in _NOT_ASKED else one.because
        alike = per_row.setdefault(one.check.slo.id, {})
        alike.setdefault((one.outlook, because, one.cure), []).append(one)
    merged: dict[tuple[object, ...], list[list[Prognosis]]] = {}
    for alike in per_row.values():
        for key, members in alike.items():
            slo = members[0].check.slo
            if key[0] in _NOT_ASKED:
                entities: tuple[str, ...] = (members[0].because,)
            else:
                entities = (slo.scope, *(one.check.entity for one in members))
            merged.setdefault((slo.stage, *key, *entities, len(alike) == 1), []).append(members)
    made = [_block(rows, whole=bool(key[-1])) for key, rows in merged.items()]
    return tuple(sorted(made, key=lambda block: (STAGES.index(block.stage), _ORDER.index(block.outlook))))


def _block(rows: list[list[Prognosis]], *, whole: bool) -> Block:
    first = rows[0][0]
    return Block(
        stage=first.check.slo.stage,
        outlook=first.outlook,
        rows=tuple(members[0].check.slo.id for members in rows),
        scope=first.check.slo.scope,
        entities=tuple(one.check.entity for one in rows[0]),
        whole=whole,
        because=first.because,
        cure=first.cure,
    )


def cures(found: Iterable[Prognosis]) -> tuple[Cure, ...]:
    """Return what would bring checks back, the one that brings back most first."""
    by_text: dict[str, list[Prognosis]] = {}
    for one in found:
        if one.outlook in _BAD and one.cure:
            by_text.setdefault(one.cure, []).append(one)
    listed = [
        Cure(
            text=text,
            rows=tuple(dict.fromkeys(one.check.slo.id for one in members)),
            checks=len(members),
            entities=tuple(dict.fromkeys(one.check.entity for one in members)),
        )
        for text, members in by_text.items()
    ]
    return tuple(sorted(listed, key=lambda cure: -cure.checks))
