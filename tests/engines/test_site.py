import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from rackgate.evidence.record import read_records

ROOT = Path(__file__).parents[2]
SERVER = Path(__file__).parent / "tiny_engine.py"
TARGET = """
[target]
name = "two"
model = "tiny"

[[engine]]
name = "started"
launcher = "process"
pool = "cpu"
[engine.settings]
command = [{python}, {script}, "--port", "{{port}}"]
ready_timeout_s = 60
stop_timeout_s = 2

[[engine]]
name = "found"
launcher = "remote"
pool = "cpu"
url = "{url}"
"""
TEST = """
import pytest
pytestmark = pytest.mark.rack_acceptance

def test_every_engine_came_up(rack_engines):
    assert not rack_engines.failures
"""


def test_the_cold_start_of_a_started_engine_is_a_measurement(pytester, served):
    pytester.makeconftest("")
    pytester.path.joinpath("rack.toml").write_text(
        TARGET.format(python=json.dumps(sys.executable), script=json.dumps(str(SERVER)), url=served())
    )
    pytester.makepyfile(test_up=TEST)
    pytester.runpytest_subprocess(
        "-m", "rack_acceptance", "--rack-target=rack.toml", "--rack-out=run", "-p", "no:cacheprovider"
    )
    records = list(read_records(pytester.path / "run" / "evidence" / "records.jsonl"))
    ready = {
        line["engine"]: line for line in records if line["kind"] == "engine" and line["state"] == "ready"
    }
    assert sorted(ready) == ["found", "started"]
    (measured,) = [line for line in records if line["kind"] == "measurement"]
    assert measured["value"] == ready["started"]["cold_start_s"] > 0
    facts = ("entity", "metric", "statistic", "unit", "count", "stage", "load", "source", "headline")
    assert {name: measured[name] for name in facts} == {
        "entity": ready["started"]["entity"],
        "metric": "cold_start_s",
        "statistic": "value",
        "unit": "s",
        "count": 1,
        "stage": "start",
        "load": "",
        "source": "process",
        "headline": False,
    }
    assert measured["definition"] == "start of the engine to its first token"


HELD = """
[target]
name = "held"
model = "tiny"

[[node]]
name = "n1"
cards = 1
[node.telemetry]
local = true

[[engine]]
name = "started"
launcher = "process"
cards = ["n1/gpu0"]
[engine.settings]
command = ["touch", "{mark}"]
ready_timeout_s = 60
"""


@pytest.mark.parametrize(("root", "held"), [("neglected", True), ("healthy", False)])
def test_an_engine_is_not_started_where_its_host_fails(tmp_path, root, held):
    target, mark = tmp_path / "rack.toml", tmp_path / "started"
    target.write_text(HELD.format(mark=mark))
    options = [
        *("-m", "rack_acceptance", f"--rack-target={target}", "--rack-stage=preflight"),
        f"--rack-host-root={files('rackgate.simulator') / 'host_roots' / root}",
        *(f"--rack-out={tmp_path / 'run'}", "-p", "no:cacheprovider"),
    ]
    command = [sys.executable, "-m", "pytest", *options]
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=False)
    records = list(read_records(tmp_path / "run" / "evidence" / "records.jsonl"))
    verdicts = {line["slo"]: line for line in records if line["kind"] == "verdict"}
    first = verdicts["preflight.engine_reachable"]
    assert held is not mark.exists()
    assert ("UNKNOWN" if held else "FAIL") == first["verdict"]
    assert held is ("it was not started: preflight.host_module @ n1 FAIL" in first["detail"]), first
    assert held is ({"driver"} == {line["layer"] for line in records if line["kind"] == "engine"})
    assert ["n1"] == [line["node"] for line in records if line["kind"] == "facts"]
    assert ("FAIL" if held else "PASS") == verdicts["preflight.host_module"]["verdict"]
