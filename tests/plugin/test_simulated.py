"""The gates with real servers behind them: the shipped suites on the simulated rack."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rackgate.engines.launch_records import process_start
from rackgate.evidence.record import read_records

pytestmark = pytest.mark.slow


@pytest.fixture
def suites(pytester, run):
    """Run the shipped suites on the simulated rack."""
    pytester.makeconftest("")

    def suites(*arguments):
        return run("--pyargs", "rackgate_suites", "-m", "rack_acceptance", "--rack-out", "run", *arguments)

    return suites


def test_energy_and_cost_stand_in_records_and_reports_by_load_and_by_class(suites):
    outcome = suites("--rack-target", "sim:1x1", "--rack-stage", "single_card")
    measured = [record for record in outcome.of("measurement") if record.get("economy")]
    loads = {record["load"]: record["workload"] for record in outcome.of("load")}
    by_load = {}
    for record in measured:
        assert (record["unit"] != "", record["definition"] != "") == (True, True)
        by_load.setdefault((record["load"], record["workload"]), {})[record["metric"]] = record
    assert {*loads.items(), *(("", workload) for workload in loads.values())} == set(by_load)
    for metrics in by_load.values():
        cards, nodes = (metrics.get(f"{part}energy_per_output_token_j") for part in ("", "rack_"))
        assert 0 < cards["value"]
        assert "exporter" == cards["source"]
        assert 0 < metrics["cost_per_1000_requests"]["value"]
        if nodes is not None:  # a load of some seconds is shorter than its controller's looks are apart
            assert nodes["value"] is None or nodes["value"] > cards["value"]
            assert nodes["value"] is not None or "asked too seldom for a load of" in nodes["detail"]
    views = outcome.folder / "views" / "default"
    html, summary = ((views / name).read_text() for name in ("report.html", "summary.md"))
    assert "Energy per token, cards" in html
    assert "## Energy and cost" in summary
    for text in ("all loads of the class", "exporter", "USD"):
        assert (text in html, text in summary) == (True, True)


def test_an_instrument_that_stalls_gates_the_rack(suites):
    outcome = suites("--rack-scenario", "slow_instrument", "--rack-stage", "selfcheck,preflight")
    assert 1 == outcome.exit_code
    assert outcome.end["headline"].startswith("NOT ACCEPTED: 0 of 4 cards qualified")
    assert "tested 0 of 4 cards on 2 nodes" in outcome.end["scope_text"]
    assert {"gated"} == {
        record["skipped"] for record in outcome.of("verdict") if record["stage"] == "preflight"
    }
    assert [] == outcome.of("engine")


def _descendants(pid):
    """Return the pids of all processes below one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found, grown = {pid}, True
    while grown:
        below = {child for child, parent in parents.items() if parent in found}
        grown = not below <= found
        found |= below
    return found - {pid}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_under_load_leaves_no_process(pytester, number):
    pytester.makeconftest("")
    out = pytester.path / "out.txt"
    asked = ("--pyargs", "rackgate_suites", "-m", "rack_acceptance", "--rack-stage", "single_card")
    with out.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-s", *asked, "--rack-out", "run", "-p", "no:cacheprovider"],
            cwd=pytester.path,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        limit = time.monotonic() + 60
        while "look 1 of" not in out.read_text() or len(_descendants(process.pid)) < 4:
            assert process.poll() is None, out.read_text()
            assert time.monotonic() < limit, out.read_text()
            time.sleep(0.02)
        below = {pid: process_start(pid) for pid in _descendants(process.pid)}
        process.send_signal(number)
        code = process.wait(timeout=60)
        limit = time.monotonic() + 30
        while left := [pid for pid, start in below.items() if start and process_start(pid) == start]:
            assert time.monotonic() < limit, left
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    records = list(read_records(pytester.path / "run" / "evidence" / "records.jsonl"))
    assert {signal.SIGTERM: 2, signal.SIGKILL: -signal.SIGKILL}[number] == code
    ended = [(record["complete"], record["accepted"]) for record in records if record["kind"] == "end"]
    assert {signal.SIGTERM: [(False, False)], signal.SIGKILL: []}[number] == ended
    assert (pytester.path / "run" / "views" / "default" / "junit.xml").exists() == (number == signal.SIGTERM)
