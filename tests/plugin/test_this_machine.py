"""Preflight of the machine that the run is on, with a folder in its place."""

import time
from pathlib import Path

import pytest

HEALTHY = Path(__file__).parents[2] / "plugins" / "rackgate" / "simulator" / "host_roots" / "healthy"


@pytest.fixture
def preflight(pytester, run, monkeypatch):
    pytester.makeconftest("")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")

    def preflight(*arguments):
        asked = ("--pyargs", "rackgate_suites", "-m", "rack_acceptance", "--rack-out", "run")
        return run(*asked, "--rack-stage=preflight", *arguments)

    return preflight


def test_a_machine_without_an_accelerator_is_told_so_at_once_and_not_accepted(preflight, tmp_path):
    started = time.monotonic()
    outcome = preflight("--rack-target=local", f"--rack-host-root={HEALTHY}")
    assert time.monotonic() - started < 30  # ten seconds on an idle machine
    (node,) = {check.split(" @ ")[1] for check in outcome.verdicts if check.startswith("preflight.card_")}
    assert 1 == outcome.exit_code
    assert "UNKNOWN" == outcome.verdicts[f"preflight.card_present @ {node}"]
    assert "PASS" == outcome.verdicts[f"preflight.clock_offset @ {node}"]
    assert outcome.line("NOT ACCEPTED: no accelerator found on this machine; 0 of 1 node qualified")
    assert "no accelerator was found on this machine: " in outcome.line("UNKNOWN preflight.card_present")


def test_no_card_is_ever_passed_where_none_was_found(preflight, tmp_path):
    outcome = preflight("--rack-target=local", f"--rack-host-root={HEALTHY}")
    rows = [record for record in outcome.of("verdict") if record["scope"] == "card"]
    assert {"UNKNOWN"} == {record["verdict"] for record in rows}
    # Rows that compare with what the target declares of its cards have nothing to compare with.
    assert {"", "declared"} >= {record["skipped"] for record in rows}


def test_preflight_alone_is_about_this_machine(preflight):
    outcome = preflight("--collect-only")
    assert "--rack-target=local (default of --rack-stage=preflight)" in outcome.text


@pytest.mark.parametrize("more", [("--rack-scenario=healthy",), (f"--rack-host-root={HEALTHY}",)])
def test_preflight_of_what_is_simulated_stays_simulated(preflight, more):
    outcome = preflight("--collect-only", *more)
    assert "--rack-target=local" not in outcome.text
    assert "card_present @ node1/gpu0" in outcome.text
