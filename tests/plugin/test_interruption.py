"""A run that is stopped: teardown runs, engines end, the records say so (case PYT-05)."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rackgate.engines import launch_records
from rackgate.evidence.record import read_records

pytestmark = pytest.mark.slow

TINY = Path(__file__).parent.parent / "engines" / "tiny_engine.py"
TARGET = """
[target]
name = "one"
model = "tiny"
[[engine]]
name = "tiny"
launcher = "process"
pool = "cpu"
[engine.settings]
command = [{python}, {script}, "--port", "{{port}}"]
ready_timeout_s = 60
stop_timeout_s = 2
"""
WAITS = """
import json, os, pathlib, pytest, time
pytestmark = pytest.mark.rack_acceptance

@pytest.fixture
def container():
    pathlib.Path("marker.txt").write_text("running")
    yield
    pathlib.Path("marker.txt").write_text("stopped")

def test_waits(rack_engines, rack_run, container):
    (engine,) = rack_engines.engines.values()
    facts = {"pid": engine.handle.pid, "keeper": engine.handle.keeper_pid, "own": os.getpid()}
    rack_run.event("here", "waiting")
    pathlib.Path("part").write_text(json.dumps(facts))
    pathlib.Path("part").rename("started.json")
    time.sleep(600)
"""


def _gone(pid):
    return launch_records.process_start(pid) == 0


def _until(condition, limit_s=60.0):
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {limit_s} s")
        time.sleep(0.02)


@pytest.fixture
def waiting(pytester):
    """Start a run that holds an engine and waits; return its process and what it told."""
    pytester.makeconftest("")
    pytester.path.joinpath("rack.toml").write_text(
        TARGET.format(python=json.dumps(sys.executable), script=json.dumps(str(TINY)))
    )
    pytester.makepyfile(test_waits=WAITS)
    command = [sys.executable, "-m", "pytest", "-m", "rack_acceptance", "--rack-target", "rack.toml"]
    with (pytester.path / "out.txt").open("wb") as out:
        process = subprocess.Popen(
            [*command, "--rack-out", "run", "-p", "no:cacheprovider"],
            cwd=pytester.path,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        told = pytester.path / "started.json"
        _until(lambda: told.exists() or process.poll() is not None)
        if process.poll() is not None:
            pytest.fail((pytester.path / "out.txt").read_text())
        yield process, json.loads(told.read_text())
    finally:
        process.kill()
        process.wait()


def _records(pytester):
    return list(read_records(pytester.path / "run" / "evidence" / "records.jsonl"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_ends_in_order_and_is_not_accepted(pytester, waiting, number):
    process, facts = waiting
    process.send_signal(number)
    assert 2 == process.wait(timeout=60)
    assert "stopped" == (pytester.path / "marker.txt").read_text()
    assert _gone(facts["pid"])
    assert _gone(facts["keeper"])
    records = _records(pytester)
    end = records[-1]
    assert ("end", False, False, 2) == tuple(
        end[key] for key in ("kind", "complete", "accepted", "exit_status")
    )
    assert "INTERRUPTED: not accepted, the run did not reach its end" == end["headline"]
    assert ["ready", "stopped"] == [record["state"] for record in records if record["kind"] == "engine"]
    views = pytester.path / "run" / "views" / "default"
    assert {"junit.xml", "report.html", "summary.md"} <= {path.name for path in views.iterdir()}
    assert "INTERRUPTED" in (views / "junit.xml").read_text()
    assert "INTERRUPTED" in (pytester.path / "out.txt").read_text()


def test_a_second_sigterm_does_not_break_the_teardown(pytester, waiting):
    process, facts = waiting
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.01)
    assert 2 == process.wait(timeout=60)
    assert ("stopped", True) == ((pytester.path / "marker.txt").read_text(), _gone(facts["pid"]))


def test_a_killed_run_leaves_readable_records_and_no_engine(pytester, waiting):
    process, facts = waiting
    process.kill()
    process.wait()
    _until(lambda: _gone(facts["pid"]) and _gone(facts["keeper"]))
    records = _records(pytester)
    assert "waiting" == records[-1]["text"]
    assert "end" not in {record["kind"] for record in records}


def test_the_next_run_says_what_a_killed_one_left_and_removes_it(pytester, waiting, run):
    process, facts = waiting
    # The keeper would end the engine: what is left over is an engine whose keeper died as well.
    orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        killed = json.loads(
            next((Path(os.environ["XDG_STATE_HOME"]) / "rackgate" / "launches").iterdir()).read_text()
        )
        process.kill()
        process.wait()
        _until(lambda: _gone(facts["pid"]))
        dead = {
            **killed,
            "token": "0" * 32,
            "pid": orphan.pid,
            "pid_start": launch_records.process_start(orphan.pid),
        }
        launch_records.remember(launch_records.Launch(**dead))
        pytester.makepyfile(test_waits=WAITS.replace("time.sleep(600)", "pass"))
        outcome = run("-m", "rack_acceptance", "--rack-target", "rack.toml", "--rack-out", "next", out="next")
        _until(lambda: orphan.poll() is not None)
        (event,) = [record for record in outcome.of("event") if record["event"] == "leftover"]
        assert f"engine tiny of run {killed['run_id']}" in event["text"]
        assert "it was ended" in event["text"]
        assert event["text"] in outcome.text
    finally:
        orphan.kill()
        orphan.wait()


@pytest.mark.parametrize("code", [0, None, 7])
def test_a_test_that_ends_pytest_cannot_make_the_run_green(pytester, ladder, code):
    pytester.makepyfile(
        test_mine=f"""
        import pytest
        pytestmark = [pytest.mark.rack_acceptance, pytest.mark.rack_stage("two_card")]
        def test_exit(): pytest.exit("enough", returncode={code})
        """
    )
    outcome = ladder("--rack-stage", "preflight,two_card", stages=("preflight",))
    assert (code or 2) == outcome.exit_code
    assert ("INTERRUPTED", False) == (outcome.end["headline"][:11], outcome.end["accepted"])
