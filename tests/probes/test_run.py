"""A probe in a whole run: its rows, its record, its log, and what the report shows of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGET = """
[target]
name = "lab"
model = "m"

[[node]]
name = "here"
cards = 1
[node.telemetry]
local = true

[[engine]]
name = "e"
launcher = "remote"
url = "http://127.0.0.1:9"
cards = ["here/gpu0"]
"""
ROW = """
[[slo]]
id = "preflight.{name}"
metric = "probe.{probe}.speed"
op = ">="
bound = {bound}
unit = "GB/s"
scope = "node"
source = "contract"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run preflight on this machine with two probes of the site, and give records and folder."""
    folder = tmp_path_factory.mktemp("run")
    body = {"name": "speed", "entity": "node", "value": 4.0, "unit": "GB/s"}
    (folder / "speed.json").write_text(json.dumps({"version": 1, "complete": True, "values": [body]}))
    agreed = f"""
[probe.disk]
command = ["cat", "{folder}/speed.json"]
values = {{ speed = "GB/s" }}
[probe.broken]
command = ["sh", "-c", "echo the secret is $RACKGATE_TEST_TOKEN; kill -9 $$"]
values = {{ speed = "GB/s" }}
"""
    agreed += "".join(
        ROW.format(name=name, probe=probe, bound=bound)
        for name, probe, bound in (
            ("disk", "disk", 3.0),
            ("fast_disk", "disk", 5.0),
            ("broken", "broken", 1.0),
        )
    )
    (folder / "rack.toml").write_text(TARGET)
    (folder / "agreed.toml").write_text(agreed)
    command = [sys.executable, "-m", "pytest", "-m", "rack_acceptance", "-p", "no:cacheprovider", "-q"]
    files = (
        f"--rack-target={folder}/rack.toml",
        f"--rack-slo={folder}/agreed.toml",
        f"--rack-out={folder}/out",
    )
    done = subprocess.run(
        [*command, *files, "--rack-stage=preflight"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "RACKGATE_TEST_TOKEN": "s3cr3t-s3cr3t"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    path = folder / "out" / "evidence" / "records.jsonl"
    assert path.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "out", [json.loads(line) for line in path.read_text().splitlines()]


def of(run, kind, **facts):
    return [one for one in run[1] if one["kind"] == kind and facts.items() <= one.items()]


def test_rows_judge_what_the_probe_says(run):
    found = {one["slo"]: (one["verdict"], one["value"]) for one in of(run, "verdict", entity="here")}
    assert ("PASS", 4.0) == found["preflight.disk"]
    assert ("FAIL", 4.0) == found["preflight.fast_disk"]
    assert ("UNKNOWN", None) == found["preflight.broken"]


def test_each_node_that_was_asked_has_one_record_and_one_log(run):
    (disk,) = of(run, "probe", probe="disk")
    assert ("here", True, True, 0, 64) == (
        disk["node"],
        disk["asked"],
        disk["answered"],
        disk["status"],
        len(disk["digest"]),
    )
    (broken,) = of(run, "probe", probe="broken")
    assert (True, False, "died") == (broken["asked"], broken["answered"], broken["reason"])
    log = (run[0] / "evidence" / broken["log"]).read_text()
    assert "the secret is" in log
    assert "s3cr3t-s3cr3t" not in log + json.dumps(run[1])


def test_the_report_shows_the_probe_where_its_row_is_not_met(run):
    for name in ("report.html", "summary.md"):
        shown = (run[0] / "views" / "default" / name).read_text()
        assert "Probe: here" in shown
        assert "logs/probe.preflight.disk.here.log" in shown.replace("\\", "")


def test_a_tool_that_is_missing_says_how_to_get_it(run):
    (quick,) = of(run, "verdict", slo="preflight.dcgm_quick", entity="here/gpu0")
    assert ("UNKNOWN", "tool_missing") == (quick["verdict"], quick["reason"])
    assert "datacenter-gpu-manager" in quick["message"]
