"""An engine of several parts: prefill and decode, workers and a router, ranks on several nodes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rackgate.engines.launchers.ports import url_of
from rackgate.engines.launchers.settings import FLAG, TABLES, TEXT, TEXTS, Key, flag, tables, text, texts
from rackgate.nouns.engine import CardKeeping
from rackgate.nouns.target import EngineSpec, Member

MEMBERS_KEY = {"members": Key(kind=TABLES)}
_MEMBER_KEYS = {
    "name": Key(kind=TEXT, required=True),
    "role": Key(kind=TEXT),
    "node": Key(kind=TEXT),
    "cards": Key(kind=TEXTS),
    "front": Key(kind=FLAG),
}
_FRONT_ROLES = ("router", "frontend", "gateway")


class Part(Protocol):
    """A started part of an engine."""

    def kill(self) -> None:
        """Send SIGKILL and return at once."""

    def alive(self) -> bool:
        """Return whether it exists."""

    def restart(self) -> None:
        """Start it again where it was."""

    def ended(self) -> str:
        """Return how it ended, such as `exit code 3`; empty while it runs or comes up."""

    def tail(self) -> bytes:
        """Return the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSpec:
    """One part to be started: its own spec, with the settings of the engine under those of the member.

    `name` is that of its log and its messages, `short` the one by which the target's words name it.
    """

    name: str
    short: str
    role: str
    spec: EngineSpec
    front: bool


def member_problems(settings: Mapping[str, object], keys: Mapping[str, Key]) -> list[str]:
    """Return what is wrong with `members`; each may also hold any key of the launcher."""
    from rackgate.engines.launchers.settings import problems_of

    value = settings.get("members")
    if not isinstance(value, list | tuple):
        return []
    optional = {name: replace(key, required=False) for name, key in keys.items() if name != "members"}
    found, names = [], []
    for index, table in enumerate(tables(settings, "members")):
        found += [
            f"members[{index}]: {problem}" for problem in problems_of(table, {**optional, **_MEMBER_KEYS})
        ]
        names.append(str(table.get("name")))
    found += [f"members: {name!r} is declared twice" for name in sorted(set(names)) if names.count(name) > 1]
    if sum(flag(table, "front") for table in tables(settings, "members")) > 1:
        found.append("members: only one can be the front")
    return found


def parts_of(spec: EngineSpec) -> tuple[PartSpec, ...]:
    """Return the parts of an engine, the front last; one part for an engine without `members`."""
    declared = tables(spec.settings, "members")
    if not declared:
        role = spec.members[0].role if spec.members else "engine"
        return (PartSpec(name=spec.name, short="", role=role, spec=spec, front=True),)
    common = {key: value for key, value in spec.settings.items() if key != "members"}
    front = _front(declared)
    parts = [
        PartSpec(
            name=f"{spec.name}-{table['name']}",
            short=str(table["name"]),
            role=text(table, "role", "engine") or "engine",
            spec=replace(
                spec,
                name=f"{spec.name}-{table['name']}",
                members=_member(table),
                settings={
                    **common,
                    **{key: value for key, value in table.items() if key not in _MEMBER_KEYS},
                },
            ),
            front=table is front,
        )
        for table in declared
    ]
    return tuple(sorted(parts, key=lambda part: part.front))


def _front(declared: tuple[Mapping[str, object], ...]) -> Mapping[str, object]:
    chosen = [table for table in declared if flag(table, "front")]
    routers = [table for table in declared if table.get("role") in _FRONT_ROLES]
    return (chosen or routers or list(declared))[0]


def _member(table: Mapping[str, object]) -> tuple[Member, ...]:
    cards, node = texts(table, "cards"), text(table, "node")
    if not cards and node is None:
        return ()
    where = node or cards[0].split("/")[0]
    return (Member(node=where, cards=cards, role=text(table, "role", "engine") or "engine"),)


def peer_values(addresses: Mapping[str, tuple[str, int]]) -> dict[str, str]:
    """Return what `{NAME.host}`, `{NAME.port}` and `{NAME.url}` stand for, by the members' short names."""
    values: dict[str, str] = {}
    for short, (host, port) in addresses.items():
        values |= {f"{short}.host": host, f"{short}.port": str(port), f"{short}.url": url_of(host, port)}
    return values


class EngineGroup:
    """The parts of one engine by name, each killable on its own; as a whole it is killed and comes back."""

    def __init__(self, parts: Mapping[str, Part], roles: Mapping[str, str]) -> None:
        self.parts = parts
        self.roles = roles

    def kill(self) -> None:
        """Send SIGKILL to every part and return at once."""
        for part in self.parts.values():
            part.kill()

    def cards_lost(self) -> str:
        """Return which parts lost their cards, "" if none did or can tell."""
        lost = {name: part.cards_lost() for name, part in self.parts.items() if isinstance(part, CardKeeping)}
        return "; ".join(f"{name}: {text}" for name, text in lost.items() if text)

    def alive(self) -> bool:
        """Return whether any part exists."""
        return any(part.alive() for part in self.parts.values())

    def restart(self) -> None:
        """Start every part that has ended again, the front last."""
        deadline = time.monotonic() + 5.0
        for part in self.parts.values():
            while part.alive() and time.monotonic() < deadline:
                time.sleep(0.02)  # the kill was sent a moment ago
            if not part.alive():
                part.restart()


def without_cards(spec: EngineSpec, cards: Sequence[str]) -> EngineSpec:
    """Return the spec as if these cards of the engine were not there.

    Raises `ValueError` for a card that is not the engine's, or if `device_ids` do not match its cards.
    """
    strange = [card for card in cards if card not in spec.cards]
    if strange:
        raise ValueError(f"engine {spec.name} has no card {', '.join(strange)}")
    members = tuple(
        replace(member, cards=tuple(card for card in member.cards if card not in cards))
        for member in spec.members
    )
    settings = dict(spec.settings)
    if cards and ({"device_count", "cdi_devices"} & set(settings)):
        raise ValueError(f"engine {spec.name} asks for its cards in a way that cannot leave one out")
    if "device_ids" in settings:
        ids = texts(settings, "device_ids")
        if len(ids) != len(spec.cards):
            raise ValueError(f"engine {spec.name}: {len(ids)} device_ids for {len(spec.cards)} cards")
        kept = [ident for ident, card in zip(ids, spec.cards, strict=True) if card not in cards]
        settings["device_ids"] = kept
    return replace(spec, members=members, settings=settings)
