"""The whole ladder, on a healthy rack and on two that are not."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from proof_run import ProofRun

from rackgate.cli import main

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("proof_run", [ProofRun("healthy")], ids=str)
def test_a_healthy_rack_is_accepted_and_again_from_its_evidence_alone(proof_run, proof_runs, capsys):
    outcome = proof_runs(proof_run)
    assert 0 == outcome.exit_status, outcome.output[-4000:]
    assert "ACCEPTED" == outcome.end["headline"].split(":")[0]
    assert outcome.end["accepted"]
    assert outcome.end["endurance"].startswith("soak: 0.0")
    assert {"PASS"} == {one["verdict"] for one in outcome.of("verdict")}
    assert len(outcome.of("plan")[0]["checks"]) == len(outcome.of("verdict"))
    assert {"report.html", "summary.md", "junit.xml"} <= {
        path.name for path in (outcome.folder / "views" / "default").iterdir()
    }
    assert (0, {}) == _judged_again(outcome, capsys)


@pytest.mark.parametrize("proof_run", [ProofRun("slow_card")], ids=str)
def test_one_slow_card_is_quarantined_and_the_other_three_go_on(proof_run, proof_runs, capsys):
    outcome = proof_runs(proof_run)
    assert 1 == outcome.exit_status
    assert outcome.end["headline"].startswith("NOT ACCEPTED: 3 of 4 cards qualified")
    assert {"node1/gpu1"} == {gate["entity"] for gate in outcome.of("gate")}
    scaling = outcome.verdicts("two_card.scaling_efficiency")
    assert "gated" == scaling["node1/gpu0+gpu1"]["skipped"]
    assert "PASS" == scaling["node2/gpu0+gpu1"]["verdict"]
    assert {"gated"} == {one["skipped"] for one in _of_pair(outcome, "node1/gpu0+gpu1")}
    assert {""} == {one["skipped"] for one in _of_pair(outcome, "node2/gpu0+gpu1")}
    assert "quarantined: node1/gpu1, by single_card." in outcome.output
    skipped = [
        case.find("skipped")
        for case in outcome.junit.iter("testcase")
        if "node1/gpu0+gpu1" in case.get("name")
    ]
    assert {"UNKNOWN: gated by single_card"} == {one.get("message").split(".")[0] for one in skipped}
    late = ("cross_node", "fault_injection", "batch_retry")
    judged = {one["stage"] for one in outcome.of("verdict") if not one["skipped"]}
    assert set(late) <= judged
    assert (1, {}) == _judged_again(outcome, capsys)


def _of_pair(outcome, pair):
    return [one for one in outcome.of("verdict") if (one["stage"], one["entity"]) == ("two_card", pair)]


def _judged_again(outcome, capsys):
    """Judge the run by the same file; return the exit status and what differs, the same checks asked."""
    status = main(["judge", str(outcome.folder), "--json"])
    judged = json.loads(capsys.readouterr().out)
    assert {check["id"] for check in outcome.of("plan")[0]["checks"]} == set(judged["verdicts"])
    assert outcome.end["headline"] == judged["headline"]
    return status, judged["changed"]


@pytest.mark.parametrize("proof_run", [ProofRun("no_failover", "fault_injection")], ids=str)
def test_a_gateway_without_failover_is_not_accepted(proof_run, proof_runs):
    outcome = proof_runs(proof_run)
    assert 1 == outcome.exit_status
    bad = {one["slo"] for one in outcome.of("verdict") if one["verdict"] != "PASS"}
    # Nobody owns up to the failures at the dead engine, so they count against the survivors too.
    rows = ("kill_detection", "kill_error_rate", "survivor_error_rate", "survivor_ttft_p95")
    assert {f"fault_injection.{row}" for row in rows} == bad
    assert "4 of 4 cards qualified" in outcome.end["headline"]


def test_a_host_root_stands_in_for_every_host_and_is_no_hardware(run_ladder):
    root = files("rackgate.simulator") / "host_roots" / "neglected"
    outcome = run_ladder("--rack-stage=preflight", f"--rack-host-root={root}")
    assert 1 == outcome.exit_status
    assert {"simulated"} == {outcome.end["grade"]}
    for name in ("host_module", "clock_offset", "xids_since_boot"):
        found = outcome.verdicts(f"preflight.{name}")
        assert {"node1": "FAIL", "node2": "FAIL"} == {node: one["verdict"] for node, one in found.items()}


def test_a_host_root_that_is_not_there_is_refused(run_pytest, tmp_path):
    done = run_pytest("--rack-stage=preflight", f"--rack-host-root={tmp_path / 'nowhere'}")
    assert (4, True) == (done.returncode, "nowhere: no such folder" in done.stdout + done.stderr)
