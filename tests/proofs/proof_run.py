"""A run of a scenario and the proofs that it has to show."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from rackgate.simulator.scenarios import scenarios

SHOWN_BY_THE_WHOLE_LADDER = {("slow_card", "single_card", "smoke")}
"""Proofs (scenario, stage, profile) that need no run of their stage alone: a test runs the ladder anyway."""


@dataclass(frozen=True)
class ProofRun:
    """A scenario, a stage of it alone (empty: the whole ladder), a profile, and what must be seen then."""

    scenario: str
    stage: str = ""
    profile: str = "smoke"
    proofs: tuple = field(default=(), compare=False)

    def __str__(self):
        return "-".join((self.scenario, self.stage or "ladder", self.profile))

    @property
    def options(self):
        size = scenarios()[self.scenario].size
        return (
            *("--rack-scenario", self.scenario, "--rack-profile", self.profile),
            *(("--rack-stage", self.stage) if self.stage else ()),
            *((f"--rack-target=sim:{size}",) if size else ()),
        )

    def is_disturbed(self, outcome):
        """Whether the machine made the load generator late where the scenario wants another verdict.

        Without proofs every verdict is wanted.
        """
        if scenarios()[self.scenario].instrument:
            return False
        unproven = {verdict["check"] for verdict in self.unproven(outcome)}
        if self.proofs and not unproven:
            return False
        late = {one["check"] for one in outcome.of("verdict") if one["reason"] == "instrument"}
        return failed_selfcheck(outcome) or bool(late & unproven if self.proofs else late)

    def unproven(self, outcome):
        """Return the recorded verdicts that are not those of the proofs."""
        return [
            *(verdict for proof in self.proofs for verdict in _otherwise(proof, outcome)),
            *(self._elsewhere(outcome) if scenarios()[self.scenario].needs else ()),
        ]

    def _elsewhere(self, outcome):
        """Return verdicts of the proven checks that are bad for what the scenario leaves in order.

        A node with something wrong takes its cards along.
        """
        scenario, named = scenarios()[self.scenario], defaultdict(set)
        affected = {f"{node}/gpu{index}" for node in scenario.nodes for index in range(2)}
        affected |= set(scenario.nodes) if scenario.size else set()
        for proof in self.proofs:
            for check in proof.checks:
                named[check].add(proof.entity)
        for check, entities in named.items():
            for entity, verdict in outcome.verdicts(check).items():
                if verdict["verdict"] in ("FAIL", "UNKNOWN") and entity not in entities | affected:
                    yield verdict


def failed_selfcheck(outcome):
    """Whether the load generator was late on its own reference server, which gates all else."""
    selfcheck = (one for one in outcome.of("verdict") if one["check"].startswith("selfcheck."))
    return any(one["verdict"] in ("FAIL", "UNKNOWN") and not one["skipped"] for one in selfcheck)


def _otherwise(proof, outcome):
    for check in proof.checks:
        verdict = outcome.verdicts(check)[proof.entity]
        seen = {link["name"] for link in verdict["diagnosis"]}
        if (verdict["verdict"], verdict["skipped"]) != (str(proof.verdict), "") or set(proof.shows) - seen:
            yield verdict


def all_proof_runs():
    """Return the runs in which every proof of every scenario is shown."""
    groups = defaultdict(list)
    for scenario in scenarios().values():
        for proof in scenario.proofs:
            groups[scenario.name, proof.stage, proof.profile].append(proof)
    return [
        ProofRun(name, "" if key in SHOWN_BY_THE_WHOLE_LADDER else stage, profile, tuple(proofs))
        for key, proofs in groups.items()
        for name, stage, profile in [key]
    ]
