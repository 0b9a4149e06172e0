"""The ledger of verdicts, and the quarantine by failure domain that follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rackgate.nouns.entities import members_of
from rackgate.nouns.slo import STAGES, THROUGH_GATEWAY, Check, Scope, Severity
from rackgate.nouns.target import Target
from rackgate.nouns.verdict import Verdict, worst
from rackgate.probes.probe import probe_of

_QUALIFYING = ("selfcheck", "preflight", "single_card")
_NODES_NEEDED = {"cross_node": 2}
_ENGINES_NEEDED = {"fault_injection": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A quarantined entity, or gated stages, and the check that caused it."""

    by: str
    verdict: Verdict
    stage: str
    entity: str | None = None
    stages: tuple[str, ...] = ()


@dataclass(slots=True)
class Ledger:
    """The verdicts of a run so far. `stop_on_fail` gates everything after a stage with an unmet blocker.

    `left_out` names the cards (engines where there are none) that the run was not asked about, and why;
    `warned` has the parts of the rack that each warning is about.
    """

    target: Target
    left_out: Mapping[str, str] = field(default_factory=dict)
    stop_on_fail: bool = False
    planned: dict[str, Check] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    silent_checks: set[str] = field(default_factory=set)
    gates: list[Gate] = field(default_factory=list)
    warned: dict[str, frozenset[str]] = field(default_factory=dict)

    def plan(self, check: Check) -> None:
        """Enter a check that was asked."""
        self.planned[check.id] = check

    def enter(
        self, check: Check, verdict: Verdict, skipped: str = "", *, answered: bool = True
    ) -> Gate | None:
        """Enter a verdict (`skipped` is gated, declared or not_assessed); return the gate that it closes.

        A check that is judged twice keeps the worse verdict. `answered` is False where the entity gave no
        sign of life: it then does not count as tested.
        """
        self.planned.setdefault(check.id, check)
        if not answered:
            self.silent_checks.add(check.id)
        self.verdicts[check.id] = worst((verdict, self.verdicts.get(check.id, verdict)))
        if skipped:
            self.skipped[check.id] = skipped
            return None
        if verdict is Verdict.WARN:
            self.warned[check.id] = self._touched(check.entity)
        gate = self._gate(check, verdict)
        if gate is None or any(
            (known.entity, known.stages) == (gate.entity, gate.stages) for known in self.gates
        ):
            return None
        self.gates.append(gate)
        return gate

    def quarantined(self, before: str) -> dict[str, str]:
        """Return the entities that may not take part in stage `before`, each with the causing check."""
        found: dict[str, str] = {}
        for gate in self.gates:
            if gate.entity is not None and STAGES.index(gate.stage) < STAGES.index(before):
                for entity in (gate.entity, *members_of(gate.entity, self.target)):
                    found.setdefault(entity, gate.by)
        return found

    def gated_by(self, check: Check) -> str | None:
        """Return the id of the check that keeps this one from being tested, if any."""
        stage = check.slo.stage
        whole = next((gate.by for gate in self.gates if stage in gate.stages), None)
        if whole is not None:
            return whole
        looked_for = self._no_card_to_ask(check)
        if looked_for is not None:
            return looked_for
        out = self.quarantined(stage)
        if not out:
            return None
        if check.entity in out:
            return out[check.entity]
        members = members_of(check.entity, self.target)
        lost = [entity for entity in members if entity in out]
        enough = len(members) > len(lost) and not (lost and check.slo.scope is Scope.PAIR)
        if members and not enough:
            return out[min(lost)]
        return self._too_few(stage, out)

    def _no_card_to_ask(self, check: Check) -> str | None:
        """Return the check that found no card on the node, for rows about cards: one cause, one UNKNOWN."""
        about_cards = check.slo.scope is Scope.CARD or check.slo.metric == "undeclared_cards"
        if self.target.no_cards is None or not about_cards:
            return None
        return next(
            (
                check_id
                for check_id, known in self.planned.items()
                if known.slo.metric == "card_present"
                and known.entity == check.entity
                and check_id in self.verdicts
                and check_id != check.id
            ),
            None,
        )

    def open_warnings(self, entity: str) -> tuple[str, ...]:
        """Return the checks that are WARN so far about the entity, a part of it, or its whole.

        Later values of the entity are measured in that state.
        """
        if not self.warned:
            return ()
        touched = self._touched(entity)
        return tuple(
            check_id
            for check_id, parts in self.warned.items()
            if parts & touched and self.verdicts[check_id] is Verdict.WARN
        )

    def _touched(self, entity: str) -> frozenset[str]:
        return self._units_behind(entity) | {entity}

    def missing(self) -> tuple[str, ...]:
        """Return the ids of checks that were asked and have no verdict."""
        return tuple(check_id for check_id in self.planned if check_id not in self.verdicts)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of everything that was asked and can be answered from here."""
        counted = [
            verdict
            for check_id, verdict in self.verdicts.items()
            if self.skipped.get(check_id, "gated") == "gated"
        ]
        counted += [Verdict.UNKNOWN for _ in self.missing()]
        return worst(counted)

    @property
    def judged(self) -> int:
        """Number of checks that were really run."""
        return sum(1 for check_id in self.verdicts if check_id not in self.skipped)

    def counts(self) -> dict[str, int]:
        """Return how many checks got each verdict, and how many were gated, declared or not assessed."""
        counted: Counter[str] = Counter()
        for check_id, verdict in self.verdicts.items():
            counted[self.skipped.get(check_id, str(verdict))] += 1
        counted["UNKNOWN"] += len(self.missing())
        names = (*(str(verdict) for verdict in Verdict), "gated", "declared", "not_assessed")
        return {name: counted.get(name, 0) for name in names}

    @property
    def units(self) -> tuple[str, ...]:
        """The units that the run qualifies: the asked cards, else engines, else nodes."""
        cards = tuple(card.name for card in self.target.cards)
        engines = tuple(engine.entity for engine in self.target.engines)
        return cards or engines or tuple(node.name for node in self.target.nodes)

    def unqualified(self) -> frozenset[str]:
        """Return the units with an unmet check of their own, of their engine or of their node.

        A unit that never reached its own qualification is not qualified either. A unit whose later checks
        were gated because of others stays qualified.
        """
        bad: set[str] = set()
        for check_id, verdict in self.verdicts.items():
            check, skipped = self.planned[check_id], self.skipped.get(check_id)
            counts = skipped is None or (skipped == "gated" and check.slo.stage in _QUALIFYING)
            if counts and not verdict.accepted and _on_a_unit(check):
                bad |= self._units_behind(check.entity)
        return frozenset(bad)

    def tested(self) -> frozenset[str]:
        """Return the units on which a check was run, alone or as a part; selfcheck does not count.

        Units behind an engine that never answered were not tested.
        """
        entities = {check.entity for check in self._run_checks() if check.id not in self.silent_checks}
        reached = {unit for entity in entities for unit in self._units_behind(entity)}
        return frozenset(reached - self.silent())

    def silent(self) -> frozenset[str]:
        """Return the units behind engines that were asked and never answered."""
        asked = [check for check in self._run_checks() if check.slo.scope is Scope.ENGINE]
        answered = {check.entity for check in asked if check.id not in self.silent_checks}
        mute = {check.entity for check in asked} - answered
        return frozenset(unit for entity in mute for unit in self._units_behind(entity))

    def _run_checks(self) -> list[Check]:
        return [
            check
            for check_id, check in self.planned.items()
            if check_id in self.verdicts and check_id not in self.skipped and check.slo.stage != "selfcheck"
        ]

    def _units_behind(self, entity: str) -> frozenset[str]:
        members = members_of(entity, self.target)
        behind = {entity, *members}
        for engine in self.target.engines:
            if engine.entity in members and entity not in engine.cards:
                behind |= set(engine.cards)
        behind |= {card.name for card in self.target.cards if card.node == entity}
        return frozenset(behind & set(self.units))

    def _gate(self, check: Check, verdict: Verdict) -> Gate | None:
        slo = check.slo
        if verdict.accepted or slo.severity is Severity.WARN:
            return None
        later = STAGES[STAGES.index(slo.stage) + 1 :]
        if self.stop_on_fail or slo.stage == "selfcheck":
            return Gate(by=check.id, verdict=verdict, stage=slo.stage, stages=later)
        if slo.stage not in _QUALIFYING or (verdict is Verdict.UNKNOWN and probe_of(slo.metric)):
            return None  # a probe that could not be asked, or has no floor, says nothing against the card
        if slo.metric == "gateway_request_ok":
            return Gate(by=check.id, verdict=verdict, stage=slo.stage, stages=THROUGH_GATEWAY)
        if slo.scope in (Scope.CARD, Scope.ENGINE, Scope.NODE):
            return Gate(by=check.id, verdict=verdict, stage=slo.stage, entity=check.entity)
        return None

    def _too_few(self, stage: str, out: dict[str, str]) -> str | None:
        left = [engine for engine in self.target.engines if engine.entity not in out]
        nodes = {node for engine in left for node in engine.nodes}
        if len(left) < _ENGINES_NEEDED.get(stage, 1) or len(nodes) < _NODES_NEEDED.get(stage, 0):
            return next(iter(out.values()))
        return None


def _on_a_unit(check: Check) -> bool:
    own = check.slo.scope in (Scope.CARD, Scope.ENGINE, Scope.NODE)
    return own and check.slo.severity is not Severity.WARN
