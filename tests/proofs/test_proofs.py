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


@pytest.mark.parametrize(
    ("scenario", "stage", "profile"), [pytest.param(*key, id="-".join(key)) for key in GROUPS]
)
def test_a_scenario_makes_its_checks_say_so(scenario, stage, profile, run_ladder):
    options = ("--rack-scenario", scenario, "--rack-stage", stage, "--rack-profile", profile)
    outcome = run_ladder(*options)
    assert 1 == outcome.exit_status, outcome.output[-3000:]
    somewhere = bool(scenarios()[scenario].needs)
    for proof in GROUPS[scenario, stage, profile]:
        for check in proof.checks:
            found = outcome.verdicts(check)
            assert str(proof.verdict) == found[proof.entity]["verdict"], found[proof.entity]
            assert "" == found[proof.entity]["skipped"]
            if somewhere:
                assert _entities(scenario, stage, profile, check) >= _not_accepted(found), found


def _entities(scenario, stage, profile, check):
    """Entities that a proof names for the check; a silent node takes all its cards along."""
    named = {proof.entity for proof in GROUPS[scenario, stage, profile] if check in proof.checks}
    nodes = scenarios()[scenario].nodes
    return named | {f"{node}/gpu{index}" for node in nodes for index in range(2)}


def _not_accepted(found):
    return {entity for entity, verdict in found.items() if verdict["verdict"] in ("FAIL", "UNKNOWN")}
