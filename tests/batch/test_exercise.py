from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rackgate.batch.exercise import exercise_batch
from rackgate.nouns.measurement import Reason
from rackgate.nouns.verdict import Verdict

pytestmark = pytest.mark.slow

RUNNER = (
    sys.executable,
    *("-m", "rackgate.batch.runner", "--concurrency", "2"),
    *("--input", "{input}", "--output", "{output}", "--url", "{url}", "--model", "{model}"),
)

BROKEN = """
import json, os, sys, time
mode, source, target = sys.argv[1:4]
ids = [json.loads(line)["custom_id"] for line in open(source)]

def record(custom_id, text="x"):
    body = {"choices": [{"message": {"content": text}}]}
    response = {"status_code": 200, "body": body}
    return json.dumps({"custom_id": custom_id, "response": response, "error": None}) + "\\n"

open(target + ".pids", "a").write(f"{os.getpid()}\\n")

held = open(target).read().splitlines() if os.path.exists(target) else []
done = [json.loads(line)["custom_id"] for line in held if line.endswith("}")]
first = not done
if mode == "mute":
    time.sleep(0.1); sys.exit(0)
if mode == "hangs":
    time.sleep(60)
if mode == "crashes":
    sys.exit(7)
if mode == "hangs on retry" and not first:
    time.sleep(60)
if mode == "gives up on retry" and not first:
    sys.exit(1)
if mode == "truncates on retry" and not first:
    open(target, "w").close(); sys.exit(0)
if mode == "at the end":
    if first:
        open(target, "w").write("".join(map(record, ids)))
    sys.exit(0)
if mode == "survives" and first and os.fork():
    time.sleep(60)
if mode == "survives":
    os.setsid()
text = "new" if not first and mode == "overwrites" else "x"
if mode == "overwrites" and not first:
    open(target, "w").close(); done = []
if mode == "duplicates":
    done = done[1:] if len(done) < len(ids) else done
if mode == "generates again" and len(done) >= len(ids):
    done = done[:-1]
left = [custom_id for custom_id in ids if custom_id not in done]
if mode == "loses" and not first:
    left = left[1:] if len(done) < len(ids) - 1 else []
with open(target, "a") as output:
    for custom_id in left:
        output.write(record(custom_id, text)); output.flush()
        time.sleep(0.03 if first else 0.0)
"""


def broken(tmp_path: Path, mode: str, **more):
    script = tmp_path / "broken.py"
    script.write_text(BROKEN)
    command = (sys.executable, str(script), mode, "{input}", "{output}")
    settings = {"tasks": 20, "deadline_s": 30.0, **more}
    return exercise_batch(command, url="http://none", model="m", workdir=tmp_path, **settings)


def test_the_reference_runner_survives_a_kill_half_way(tmp_path, engine):
    engine.delay_s = 0.05
    found = exercise_batch(
        RUNNER,
        url=engine.url,
        model="m",
        workdir=tmp_path,
        tasks=32,
        deadline_s=60.0,
        served=lambda: len(engine.bodies),
    )
    assert (None, "") == (found.reason, found.detail)
    assert (Verdict.PASS, 32, 32) == (found.report.verdict, found.report.tasks, found.report.terminal)
    assert (True, 0, (-9, 0, 0)) == (found.kill_proven, found.generations, found.exit_codes)
    assert 16 <= found.killed_after < 32
    assert {body["model"] for body in engine.bodies} == {"m"}
    left = {path.name for path in Path(found.folder).iterdir()}
    assert {"input.jsonl", "output.jsonl", "output.before-retry.jsonl", "killed-run.log"} <= left


@pytest.mark.parametrize(
    ("mode", "field"),
    [
        ("loses", "lost"),
        ("duplicates", "duplicated"),
        ("overwrites", "overwritten"),
        ("generates again", "regenerated"),
        ("truncates on retry", "overwritten"),
    ],
)
def test_a_broken_runner_fails_because_of_what_it_breaks(mode, field, tmp_path):
    found = broken(tmp_path, mode)
    assert (None, True) == (found.reason, found.kill_proven)
    assert getattr(found.report, field)
    assert Verdict.FAIL == found.report.verdict


@pytest.mark.parametrize(
    ("mode", "reason", "detail"),
    [
        ("mute", Reason.ABSENT, "wrote no output"),
        ("crashes", Reason.DIED, "ended with status 7 before it could be killed"),
        ("at the end", Reason.TOO_FEW, "written everything before it could be killed"),
        ("survives", Reason.INSTRUMENT, "went on after the kill"),
        ("gives up on retry", Reason.DIED, "the retry ended with status 1"),
    ],
)
def test_an_exercise_that_showed_nothing_has_a_reason_and_no_report(mode, reason, detail, tmp_path):
    found = broken(tmp_path, mode)
    assert (None, reason) == (found.report, found.reason)
    assert detail in found.detail


@pytest.mark.parametrize("mode", ["hangs", "hangs on retry"])
def test_a_runner_that_hangs_is_a_timeout_and_is_gone_afterwards(mode, tmp_path):
    found = broken(tmp_path, mode, deadline_s=2.0)
    assert (None, Reason.TIMEOUT) == (found.report, found.reason)
    assert (mode == "hangs on retry") == found.kill_proven
    pids = (Path(found.folder) / "output.jsonl.pids").read_text().split()
    assert len(pids) == (2 if found.kill_proven else 1)
    for pid in map(int, pids):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_runner_beneath_a_shell_dies_with_the_shell(tmp_path):
    script = tmp_path / "broken.py"
    script.write_text(BROKEN)
    line = f"{sys.executable} {script} fine {{input}} {{output}}; exit $?"
    found = exercise_batch(
        ("sh", "-c", line), url="u", model="m", workdir=tmp_path, tasks=20, deadline_s=30.0
    )
    assert (None, True) == (found.reason, found.kill_proven)
    assert Verdict.PASS == found.report.verdict


def test_a_command_that_cannot_run_has_a_reason(tmp_path):
    def reason(*command):
        return exercise_batch(command, url="u", model="m", workdir=tmp_path, tasks=4, deadline_s=5.0).reason

    (tmp_path / "plain").write_text("")
    assert Reason.TOOL_MISSING == reason("no-such-batch-tool", "{input}", "{output}")
    assert Reason.NO_PERMISSION == reason(str(tmp_path / "plain"), "{input}", "{output}")
    assert Reason.NOT_CONFIGURED == reason("true", "{input}")


@pytest.mark.parametrize(("tasks", "kill_at"), [(1, 0.5), (10, 0.0), (10, 1.0)])
def test_arguments_that_make_no_exercise_are_refused(tasks, kill_at, tmp_path):
    with pytest.raises(ValueError, match="at least 2 tasks"):
        exercise_batch(("true",), url="u", model="m", workdir=tmp_path, tasks=tasks, kill_at=kill_at)
