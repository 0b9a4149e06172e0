"""Every check is proven able to FAIL and to be UNKNOWN, each by a scenario, un-gated, on its own stage."""

from __future__ import annotations

import pytest
from proof_run import all_proof_runs

from rackgate.cli.checks import describe_checks
from rackgate.simulator.scenarios import scenarios

pytestmark = pytest.mark.proof


def test_every_shipped_check_is_proven_to_fail_and_to_be_unknown():
    described = describe_checks()
    unproven = [
        check["id"] for check in described["checks"] if not (check["fails_in"] and check["unknown_in"])
    ]
    assert [] == unproven
    summary = described["summary"]
    assert {summary["checks"]} == set(summary.values())


def test_every_proof_names_a_check_that_exists_and_belongs_to_a_run():
    proofs = [proof for scenario in scenarios().values() for proof in scenario.proofs]
    assert set() == {check for proof in proofs for check in proof.checks} - {
        check["id"] for check in describe_checks()["checks"]
    }
    assert sorted(map(repr, proofs)) == sorted(
        repr(proof) for run in all_proof_runs() for proof in run.proofs
    )


@pytest.mark.parametrize("proof_run", all_proof_runs(), ids=str)
def test_a_scenario_makes_its_checks_say_so(proof_run, proof_runs):
    outcome = proof_runs(proof_run)
    assert 1 == outcome.exit_status, outcome.output[-3000:]
    assert [] == proof_run.unproven(outcome)
