"""Every check is proven able to FAIL and to be UNKNOWN, each by a scenario, un-gated, on its own stage."""

from __future__ import annotations

from collections import defaultdict

import pytest

from rackgate.cli.checks import describe_checks
from rackgate.simulator.scenarios import scenarios

pytestmark = pytest.mark.proof

GROUPS = defaultdict(list)
for _scenario in scenarios().values():
    for _proof in _scenario.proofs:
        GROUPS[_scenario.name, _proof.stage, _proof.profile].append(_proof)


def test_every_shipped_check_is_proven_to_fail_and_to_be_unknown():
    described = describe_checks()
    unproven = [
        check["id"] for check in described["checks"] if not (check["fails_in"] and check["unknown_in"])
    ]
    assert [] == unproven
    summary = described["summary"]
    assert {summary["checks"]} == set(summary.values())


def test_every_proof_names_a_check_that_exists():
    known = {check["id"] for check in describe_checks()["checks"]}
    named = {check for proofs in GROUPS.values() for proof in proofs for check in proof.checks}
    assert set() == named - known


@pytest.mark.parametrize("proof_run", [pytest.param(key, id="-".join(key)) for key in GROUPS])
def test_a_scenario_makes_its_checks_say_so(proof_run, proof_runs):
    outcome = proof_runs(proof_run)
    assert 1 == outcome.exit_status, outcome.output[-3000:]
    somewhere = bool(scenarios()[proof_run[0]].needs)
    for proof in GROUPS[proof_run]:
        for check in proof.checks:
            found = outcome.verdicts(check)
            assert str(proof.verdict) == found[proof.entity]["verdict"], found[proof.entity]
            assert "" == found[proof.entity]["skipped"]
            assert set(proof.shows) <= {link["name"] for link in found[proof.entity]["diagnosis"]}
            if somewhere:
                assert _entities(proof_run, check) >= _not_accepted(found), found


def _entities(proof_run, check):
    """Entities that a proof names for the check; a node with something wrong takes its cards along."""
    named = {proof.entity for proof in GROUPS[proof_run] if check in proof.checks}
    nodes, size = scenarios()[proof_run[0]].nodes, scenarios()[proof_run[0]].size
    cards = {f"{node}/gpu{index}" for node in nodes for index in range(2)}
    return named | cards | (set(nodes) if size else set())


def _not_accepted(found):
    return {entity for entity, verdict in found.items() if verdict["verdict"] in ("FAIL", "UNKNOWN")}
