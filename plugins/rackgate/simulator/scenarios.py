"""Scenarios: the defects of a simulated rack, and the verdicts that must show them."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from typing import Any

from rackgate.nouns.slo import STAGES
from rackgate.nouns.verdict import Verdict
from rackgate.simulator.knobs import CardKnobs, GatewayKnobs, NodeKnobs, from_table

INSTRUMENT_DEFECTS = ("", "slow", "die")
"""Defects of the load generator."""

BATCH_DEFECTS = ("none", "duplicate", "lose", "overwrite", "invent", "fail", "mute")
"""Defects of the simulated batch command; all but `mute` show only in a retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """In this scenario, `checks` (SLO ids) of `stage` must have `verdict` for `entity`, because of `cause`.

    Their chains must hold the known failures in `shows`.
    """

    stage: str
    verdict: Verdict
    checks: tuple[str, ...]
    entity: str
    cause: str
    shows: tuple[str, ...] = ()
    profile: str = "smoke"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario. `cards` and `nodes` map names, or `*` for all, to the knobs that differ from health.

    `size` is the size of its rack, `NODESxCARDS`, if that is not the default size.
    """

    name: str
    summary: str
    size: str = ""
    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    gateway: GatewayKnobs = field(default_factory=GatewayKnobs)
    instrument: str = ""
    batch: str = "none"
    proofs: tuple[Proof, ...] = ()

    def card(self, name: str) -> CardKnobs:
        """Return the knobs of one card."""
        return from_table(CardKnobs, self._merged(self.cards, name), f"{self.name}.cards.{name}")

    def node(self, name: str) -> NodeKnobs:
        """Return the knobs of one node."""
        return from_table(NodeKnobs, self._merged(self.nodes, name), f"{self.name}.nodes.{name}")

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the cards and nodes that the scenario needs."""
        named = (*self.cards, *self.nodes, *self.gateway.weights, *self.gateway.node_delay_ms)
        return tuple(dict.fromkeys(name for name in named if name != "*"))

    @staticmethod
    def _merged(tables: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
        return {**tables.get("*", {}), **tables.get(name, {})}


@functools.cache
def scenarios() -> Mapping[str, Scenario]:
    """Return the shipped scenarios by name, in the order of the file."""
    text = files(__package__).joinpath("scenarios.toml").read_text(encoding="utf-8")
    return parse_scenarios(tomllib.loads(text))


def scenario(name: str) -> Scenario:
    """Return a shipped scenario; raises ValueError with the known names."""
    known = scenarios()
    if name not in known:
        raise ValueError(f"unknown scenario {name!r}; known are {', '.join(known)}")
    return known[name]


def parse_scenarios(document: Mapping[str, Any]) -> dict[str, Scenario]:
    """Return the scenarios of a parsed TOML document; raises ValueError with all problems in one message."""
    found: dict[str, Scenario] = {}
    problems: list[str] = []
    for name, table in document.items():
        try:
            found[name] = _parse(name, table)
        except (TypeError, ValueError) as problem:
            problems.append(str(problem))
    if problems:
        raise ValueError("\n".join(problems))
    return found


def _parse(name: str, table: Mapping[str, Any]) -> Scenario:
    _refuse_unknown(name, table, [each.name for each in fields(Scenario) if each.name != "name"])
    given = [key for key in ("summary", "size", "cards", "nodes") if key in table]
    made = Scenario(name=name, **{key: table[key] for key in given})
    for card in made.cards:
        made.card(card)
    for node in made.nodes:
        made.node(node)
    if re.fullmatch(r"(\d+x\d+)?", made.size) is None:
        raise ValueError(f"{name}.size: {made.size!r} is not NODESxCARDS")
    instrument, batch = table.get("instrument", ""), table.get("batch", "none")
    if instrument not in INSTRUMENT_DEFECTS:
        raise ValueError(f"{name}.instrument: {instrument!r} is none of {', '.join(INSTRUMENT_DEFECTS[1:])}")
    if batch not in BATCH_DEFECTS:
        raise ValueError(f"{name}.batch: {batch!r} is none of {', '.join(BATCH_DEFECTS)}")
    return replace(
        made,
        gateway=from_table(GatewayKnobs, table.get("gateway", {}), f"{name}.gateway"),
        instrument=instrument,
        batch=batch,
        proofs=tuple(_proof(name, proof) for proof in table.get("proofs", ())),
    )


def _proof(name: str, table: Mapping[str, Any]) -> Proof:
    where = f"{name}.proofs"
    _refuse_unknown(where, table, [each.name for each in fields(Proof)])
    verdict = Verdict(table["verdict"])
    if verdict is Verdict.PASS:
        raise ValueError(f"{where}: {verdict} proves nothing; FAIL, UNKNOWN or, of a warning row, WARN does")
    if table["stage"] not in STAGES:
        raise ValueError(f"{where}: {table['stage']!r} is none of {', '.join(STAGES)}")
    return Proof(
        **{
            **table,
            "verdict": verdict,
            "checks": tuple(table["checks"]),
            "shows": tuple(table.get("shows", ())),
        }
    )


def _refuse_unknown(where: str, table: Mapping[str, Any], known: list[str]) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise ValueError(f"{where}: unknown {', '.join(unknown)}; known are {', '.join(known)}")
