from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from rackgate.batch.checker import check_batch
from rackgate.batch.input_file import InputRefused, read_input
from rackgate.batch.output_file import plan_resume
from rackgate.batch.results import answers
from rackgate.batch.runner import main, run_batch

CASES = Path(__file__).parent.parent / "cases"
INPUTS = CASES / "inputs"
EXPECTED = {
    name: case["expected"] for name, case in json.loads((CASES / "expected.json").read_text()).items()
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_duplicate_id_is_refused_before_anything_is_sent(tmp_path, engine, capsys, put):
    asked = put("BAT-02")
    with pytest.raises(InputRefused, match=EXPECTED["BAT-02"]["error"]) as refusal:
        read_input(asked)
    expected = {custom_id: tuple(lines) for custom_id, lines in EXPECTED["BAT-02"]["duplicates"].items()}
    assert expected == refusal.value.duplicates
    arguments = ["--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    assert 2 == main([*arguments, "--url", engine.url, "--model", "m"])
    assert "duplicate custom_id 'c-2' in lines 2, 4" in capsys.readouterr().err
    assert EXPECTED["BAT-02"]["requests_sent"] == len(engine.bodies)
    assert not (tmp_path / "out.jsonl").exists()


def test_every_problem_of_an_input_is_named_with_its_line():
    good = {"custom_id": "a", "method": "POST", "url": "/v1/x", "body": {}}
    lines = [
        good,
        "torn",
        {**good, "custom_id": ""},
        {**good, "custom_id": "b", "url": 3},
        {**good, "body": []},
    ]
    data = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines).encode()
    with pytest.raises(InputRefused) as refusal:
        read_input(data)
    assert (
        "line 2 is not a JSON object; line 3 has no custom_id; "
        "line 4: url 3 is not a path such as /v1/chat/completions; line 5: body is not a JSON object"
    ) == str(refusal.value)
    with pytest.raises(InputRefused, match="no task"):
        read_input(b"\n\n")


def test_a_file_from_a_windows_editor_keeps_all_its_records(engine, put, options_for):
    asked = put("BAT-06")
    batch = read_input(asked)
    assert EXPECTED["BAT-06"] == {
        "records": len(batch.tasks),
        "ids": list(batch.ids),
        "warnings": list(batch.warnings),
    }
    assert 2 == run_batch(options_for(engine)).written


def test_results_are_joined_by_id_whatever_their_order(tmp_path, engine, put, options_for):
    put("BAT-03")
    run_batch(options_for(engine, concurrency=3))
    assert EXPECTED["BAT-03"]["by_id"] == answers((tmp_path / "out.jsonl").read_bytes())


def test_a_killed_runner_has_written_what_was_answered_and_goes_on(tmp_path, engine, put):
    asked = put("BAT-10")
    plan = json.loads((INPUTS / "BAT-10.plan.json").read_text())
    engine.hold_from = plan["after_results"] + 1
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "rackgate.batch.runner", "--concurrency", "1", "--model", "m"]
    command += ["--input", str(tmp_path / "in.jsonl"), "--output", str(out), "--url", engine.url]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as runner:
        deadline = time.monotonic() + 30
        while not out.exists() or out.read_bytes().count(b"\n") < plan["after_results"]:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.kill(runner.pid, getattr(signal, plan["kill_signal"]))
    engine.opened.set()
    before = out.read_bytes()
    assert EXPECTED["BAT-10"]["lines_in_out"] == before.count(b"\n")
    assert EXPECTED["BAT-10"]["resume_sends"] == list(plan_resume(read_input(asked), before).to_run)
    assert 0 == subprocess.run(command, check=False, stderr=subprocess.DEVNULL, timeout=60).returncode
    report = check_batch(asked, out.read_bytes(), before_retry=before)
    assert (5, (), (), ()) == (report.terminal, report.lost, report.duplicated, report.overwritten)


def test_a_full_retry_sends_nothing_and_leaves_the_file_alone(tmp_path, engine, put, options_for):
    put("BAT-03")
    options = options_for(engine)
    run_batch(options)
    before = (tmp_path / "out.jsonl").read_bytes()
    again = run_batch(options)
    assert (5, 0, 0, ()) == (again.kept, again.sent, again.written, again.open)
    assert (5, before) == (len(engine.bodies), (tmp_path / "out.jsonl").read_bytes())


def test_a_refusal_is_a_result_and_a_busy_engine_is_asked_again(tmp_path, engine, put, options_for):
    put("BAT-03")
    engine.script = {
        1: (429, {"retry-after": "0"}, {"error": {"message": "busy"}}),
        2: (503, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, {}),
        3: (500, {}, b"not json"),
        4: (400, {}, {"error": {"message": "max_tokens too large"}}),
    }
    outcome = run_batch(options_for(engine, concurrency=1))
    assert (5, 8) == (outcome.written, outcome.sent)
    report = check_batch((tmp_path / "in.jsonl").read_bytes(), (tmp_path / "out.jsonl").read_bytes())
    assert {"c-1": "failed 400"} == {key: label for key, label in report.labels.items() if label != "ok"}


def test_the_wait_is_what_the_server_asks_for_up_to_the_cap(monkeypatch, put, options_for):
    put("BAT-03")
    waits = []
    retry_after = iter(["7", "Wed, 21 Oct 2026 07:28:30 GMT", "soon", "3600", None])

    async def record_wait(seconds):
        waits.append(seconds)

    def respond(request):
        value = next(retry_after, "done")
        if value == "done":
            return httpx.Response(200, json={"choices": [{"message": {"content": "x"}}]})
        headers = {"date": "Wed, 21 Oct 2026 07:28:00 GMT", **({"retry-after": value} if value else {})}
        return httpx.Response(429, headers=headers)

    monkeypatch.setattr("rackgate.batch.runner.asyncio.sleep", record_wait)
    options = options_for("http://engine", concurrency=1, retry_cap_s=60.0)
    assert 5 == run_batch(options, transport=httpx.MockTransport(respond)).written
    assert [7.0, 30.0] == waits[:2]
    assert 1.0 <= waits[2] <= 2.0
    assert 60.0 == waits[3]
    assert 4.0 <= waits[4] <= 8.0


def test_tasks_that_come_to_no_end_stay_open_and_are_run_by_the_next_run(tmp_path, engine, capsys, put):
    put("BAT-03")
    dead = f"http://127.0.0.1:{free_port()}"
    arguments = [
        "--input",
        str(tmp_path / "in.jsonl"),
        "--output",
        str(tmp_path / "out.jsonl"),
        "--model",
        "m",
    ]
    assert 1 == main([*arguments, "--url", dead, "--attempts", "2", "--retry-cap-s", "0.01"])
    assert "5 tasks: 0 kept, 0 written, 5 open (ConnectError" in capsys.readouterr().err
    assert b"" == (tmp_path / "out.jsonl").read_bytes()
    assert 0 == main([*arguments, "--url", engine.url])


def test_the_model_is_filled_in_only_where_a_task_names_none(tmp_path, engine, options_for):
    body = {"messages": [{"role": "user", "content": "n 1"}]}
    lines = [
        {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body},
        {"custom_id": "b", "method": "POST", "url": "/v1/chat/completions", "body": {**body, "model": "own"}},
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    run_batch(options_for(engine.url + "/v1", concurrency=1))
    assert ["m", "own"] == [body["model"] for body in engine.bodies]


def test_the_key_comes_from_the_environment(tmp_path, engine, monkeypatch, put, options_for):
    put("BAT-03")
    monkeypatch.setenv("BATCH_KEY", "k-1")
    run_batch(options_for(engine, api_key_env="BATCH_KEY"))
    assert {"Bearer k-1"} == {headers.get("authorization") for headers in engine.headers}
    assert b"k-1" not in (tmp_path / "out.jsonl").read_bytes()


def test_odd_text_goes_through_whole(tmp_path, engine, options_for):
    texts = ["line\u2028separator \u0085", "lone \ud83d surrogate", "null \u0000", "\U0001f600 \u00e9"]
    lines = [
        {
            "custom_id": f"id \u2028 {number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": text}]},
        }
        for number, text in enumerate(texts)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = options_for(engine)
    assert 4 == run_batch(options).written
    assert ["v" + text for text in texts] == [
        text for _, text in sorted(answers(options.output_path.read_bytes()).items())
    ]
    assert 0 == run_batch(options).sent


def test_an_address_that_is_none_is_a_usage_error(tmp_path, capsys):
    arguments = ["--input", "a", "--output", "b", "--model", "m"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--url", "engine:8000"])
    assert ended.value.code == 2
    assert "does not begin with http:// or https://" in capsys.readouterr().err
    assert main([*arguments, "--input", str(tmp_path / "none.jsonl"), "--url", "http://engine"]) == 2
    assert "none.jsonl" in capsys.readouterr().err
