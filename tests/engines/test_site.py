import json
import sys
from pathlib import Path

from rackgate.record import read_records

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
