"""A finished run is judged again from its evidence alone, by another acceptance file."""

import hashlib
import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path

import pytest

from rackgate.cli import main
from rackgate.evidence.record import read_records
from rackgate.nouns.measurement import Symptom
from rackgate.nouns.slo import Check, Op, Scope, Slo
from rackgate.rejudge.finished_run import FinishedRun

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PATIENT = """
[[slo]]
id = "selfcheck.schedule_lag_p99"
bound = 500.0
reason = "not the instrument is tested here, and other tests share its cores"
"""
CLOSED_HOST = """
[target]
name = "lab"
model = "m"

[[node]]
name = "node1"
cards = 1

[[engine]]
name = "e"
launcher = "remote"
url = "http://127.0.0.1:9"
cards = ["node1/gpu0"]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A real run of a small simulated rack: preflight and the single cards."""
    base = tmp_path_factory.mktemp("rejudge")
    agreed = base / "agreed.toml"
    agreed.write_text(PATIENT)
    options = ("--rack-target=sim:1x2", "--rack-stage=preflight,single_card", f"--rack-slo={agreed}")
    for number in range(3):  # other tests share the cores: rows of a late load generator are UNKNOWN
        folder = base / f"run{number}"
        done = _run(folder, *options)
        if done.returncode == 0:
            return folder
    pytest.fail(done.stdout[-3000:])


def _run(folder, *options):
    command = [sys.executable, "-m", "pytest", "-m", "rack_acceptance", "-p", "no:cacheprovider", "-q"]
    return subprocess.run(
        [*command, *options, f"--rack-out={folder}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def judge(finished, tmp_path, capsys):
    """Judge the run again by some rows; return the exit status and what was said as JSON."""

    def judge(rows="", *options, folder=finished):
        path = finished.with_name("agreed.toml")
        if rows:
            path = tmp_path / "other.toml"
            path.write_text(PATIENT + rows)
        status = main(["judge", str(folder), "--slo", str(path), "--json", *options])
        said = capsys.readouterr()
        return status, json.loads(said.out) if said.out else said.err

    return judge


def _digests(folder):
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (folder / "evidence").rglob("*")
        if path.is_file()
    }


def test_the_same_file_gives_the_same_verdicts_and_leaves_the_evidence_alone(finished, judge):
    before = _digests(finished)
    status, judged = judge()
    (end,) = [
        record for record in read_records(finished / "evidence/records.jsonl") if record["kind"] == "end"
    ]
    assert (0, {}, end["headline"]) == (status, judged["changed"], judged["headline"])
    assert end["counts"] == judged["counts"]
    assert before == _digests(finished)


def test_what_the_target_declares_absent_is_not_asked_when_it_is_judged_again(tmp_path, capsys):
    (tmp_path / "rack.toml").write_text(CLOSED_HOST)
    folder = tmp_path / "run"
    done = _run(folder, f"--rack-target={tmp_path / 'rack.toml'}", "--rack-stage=preflight")
    assert (folder / "evidence" / "records.jsonl").exists(), done.stdout[-3000:] + done.stderr[-3000:]
    main(["judge", str(folder), "--json"])
    judged = json.loads(capsys.readouterr().out)
    assert "declared" == judged["verdicts"]["preflight.dcgm_quick @ node1/gpu0"]
    assert {} == judged["changed"]


def test_a_stricter_bound_fails_what_had_passed_and_quarantines_it(finished, judge):
    row = '[[slo]]\nid = "single_card.ttft_p50"\nbound = 1.0\nreason = "contract 4.2"\n'
    status, judged = judge(row)
    assert {
        f"single_card.ttft_p50 @ node1/gpu{card}": {"was": "PASS", "is": "FAIL"} for card in (0, 1)
    } == judged["changed"]
    assert (1, False) == (status, judged["accepted"])
    assert "0 of 2 cards qualified" in judged["headline"]


def test_a_row_that_the_run_never_asked_is_computed_from_its_samples(judge):
    row = """
[[slo]]
id = "single_card.ttft_p90"
load = "interactive"
metric = "ttft_ms"
statistic = "p90"
op = "<="
bound = 60000.0
unit = "ms"
scope = "card"
source = "contract 4.3"
"""
    _, judged = judge(row)
    assert {"PASS"} == {
        verdict for check, verdict in judged["verdicts"].items() if check.startswith("single_card.ttft_p90 ")
    }


def test_rows_that_ship_since_the_run_are_left_out_unless_a_file_asks_for_them(
    finished, judge, tmp_path, capsys
):
    older = tmp_path / "older"
    shutil.copytree(finished, older)
    path = older / "evidence" / "records.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        if record["kind"] == "plan":
            record["checks"] = [one for one in record["checks"] if one["slo"] != "preflight.pcie_width"]
    records = [one for one in records if one.get("slo") != "preflight.pcie_width"]
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    main(["judge", str(older), "--json"])
    judged = json.loads(capsys.readouterr().out)
    assert 2 == judged["left_out"]
    assert not [check for check in judged["verdicts"] if check.startswith("preflight.pcie_width ")]
    status, judged = judge(folder=older)
    assert (1, 0) == (status, judged["left_out"])
    assert "UNKNOWN" == judged["verdicts"]["preflight.pcie_width @ node1/gpu0"]


def test_what_was_probed_is_judged_by_the_value_on_record(judge):
    row = '[[slo]]\nid = "preflight.telemetry_coverage"\nbound = 1.5\nreason = "more than there is"\n'
    _, judged = judge(row)
    assert {"preflight.telemetry_coverage @ node1/gpu0", "preflight.telemetry_coverage @ node1/gpu1"} <= {
        check for check, change in judged["changed"].items() if change["is"] == "FAIL"
    }


def test_a_load_that_was_offered_otherwise_is_unknown_with_the_difference(finished, judge):
    load = '[load.interactive]\nconcurrency = 64\nreason = "twice the users"\n'
    status, judged = judge(load, "--view", "other-load")
    assert (1, "UNKNOWN") == (status, judged["verdicts"]["single_card.ttft_p50 @ node1/gpu0"])
    said = (finished / "views/other-load/junit.xml").read_text()
    assert "the run offered load &#x27;interactive&#x27; otherwise: concurrency 8, not 64" in said.replace(
        "'", "&#x27;"
    )


def test_lost_samples_are_unknown_and_never_a_number(finished, judge, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    for path in (copy / "evidence" / "samples").glob("*interactive*"):
        path.unlink()
    status, judged = judge(folder=copy)
    assert (1, "UNKNOWN") == (status, judged["verdicts"]["single_card.ttft_p50 @ node1/gpu0"])
    assert judged["changed"]


def test_an_interrupted_run_stays_not_accepted(finished, judge, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    records = copy / "evidence" / "records.jsonl"
    records.write_bytes(b"".join(records.read_bytes().splitlines(keepends=True)[:-1]))
    status, judged = judge(folder=copy)
    assert (1, False) == (status, judged["accepted"])
    assert judged["headline"].startswith("INTERRUPTED")


def test_the_view_has_a_manifest_a_report_and_a_junit_of_its_own(finished, judge):
    judge(
        '[[slo]]\nid = "single_card.ttft_p50"\nbound = 1.0\nreason = "contract 4.2"\n',
        "--view=contract",
    )
    view = finished / "views" / "contract"
    manifest = json.loads((view / "manifest.json").read_text())
    assert {"junit.xml", "report.html", "summary.md"} == set(manifest["files"])
    for name, digest in {
        **manifest["files"],
        "judgement.jsonl": manifest["judgement"]["judgement.jsonl"],
    }.items():
        assert digest == hashlib.sha256((view / name).read_bytes()).hexdigest()
    assert manifest["judgement"]["acceptance"]["overrides"][-1]["reason"] == "contract 4.2"
    suite = ET.parse(view / "junit.xml").getroot().find("testsuite")
    failed = {
        case.get("name"): case.find("failure").get("message")
        for case in suite
        if case.find("failure") is not None
    }
    assert {"single_card.ttft_p50 @ node1/gpu0", "single_card.ttft_p50 @ node1/gpu1"} == set(failed)
    assert all(message.startswith("FAIL ") for message in failed.values())
    assert suite.get("failures") == "2"
    html = (view / "report.html").read_text()
    assert "Judged again at" in html
    assert "by another acceptance" in html
    assert f"evidence/records.jsonl of rackgate {version('pytest-rackgate')}, SHA-256" in html
    assert "Judged again" not in (finished / "views" / "default" / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--view", "default"], "--view default: that is the run's own judgement"),
        (["--profile", "swift"], "no profile 'swift'"),
    ],
)
def test_what_cannot_be_judged_so_is_refused(judge, options, said):
    status, error = judge("", *options)
    assert status == 4
    assert said in error


@pytest.mark.parametrize("content", [None, b"", b"{}\n", b"no json\n", b'{"kind":"run","schema":99}\n'])
def test_a_folder_without_evidence_is_refused(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "evidence").mkdir()
        (tmp_path / "evidence" / "records.jsonl").write_bytes(content)
    assert 4 == main(["judge", str(tmp_path)])
    assert "records.jsonl" in capsys.readouterr().err


def test_codes_that_were_seen_stay_with_what_was_probed():
    row = Slo(
        id="preflight.card_xids",
        stage="preflight",
        metric="xids_since_boot",
        statistic="value",
        op=Op.EQUAL,
        bound=0.0,
        unit="events",
        scope=Scope.CARD,
        source="test",
    )
    seen = {"key": "xid:79", "seen": "XID 79 on node1/gpu0"}
    record = {
        "kind": "verdict",
        "entity": "node1/gpu0",
        "stage": "preflight",
        "metric": "xids_since_boot",
        "statistic": "value",
        "load": None,
        "unit": "events",
        "value": 1.0,
        "reason": None,
        "symptoms": [seen],
    }
    known = FinishedRun(folder=Path(), records=(record,), digest="", target=None, loads={})
    measured = known.recorded(Check(slo=row, entity="node1/gpu0"))
    assert (Symptom(**seen),) == measured.symptoms
