"""Preflight of the machine that the run is on, with a folder in its place."""

import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

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
    rows = [
        record
        for record in outcome.of("verdict")
        if record["scope"] == "card" and record["skipped"] != "declared"
    ]
    (first, *others) = [(record["verdict"], record["gated_by"]) for record in rows]
    assert ("UNKNOWN", "") == first
    assert [("UNKNOWN", rows[0]["check"])] * len(others) == others
    assert "UNKNOWN" == outcome.verdicts[rows[0]["check"].replace("card_present", "undeclared_cards")]


def test_a_card_on_the_bus_without_its_module_fails_in_the_order_of_triage(preflight, pytester):
    machine = pytester.mkdir("machine")
    device = machine / "sys" / "bus" / "pci" / "devices" / "0000:1b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    (machine / "proc" / "sys" / "kernel").mkdir(parents=True)
    (machine / "proc" / "sys" / "kernel" / "osrelease").write_text("6.8.0\n")
    (machine / "proc" / "modules").write_text("ext4 1 2 - Live 0x0\n")
    outcome = preflight("--rack-target=local", f"--rack-host-root={machine}")
    (node,) = {check.split(" @ ")[1] for check in outcome.verdicts if check.startswith("preflight.card_")}
    assert "FAIL" == outcome.verdicts[f"preflight.host_module @ {node}"]
    assert outcome.line("  (1) kernel module: `modprobe nvidia`")
    (clock,) = [one for one in outcome.of("verdict") if one["slo"] == "preflight.clock_offset"]
    assert clock["hint"].startswith("install chrony")


def test_preflight_alone_is_about_this_machine(preflight):
    outcome = preflight("--collect-only")
    assert "--rack-target=local (default of --rack-stage=preflight)" in outcome.text


@pytest.mark.parametrize("more", [("--rack-scenario=healthy",), (f"--rack-host-root={HEALTHY}",)])
def test_preflight_of_what_is_simulated_stays_simulated(preflight, more):
    outcome = preflight("--collect-only", *more)
    assert "--rack-target=local" not in outcome.text
    assert "card_present @ node1/gpu0" in outcome.text
