from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from rackgate.batch.input_file import read_input
from rackgate.batch.output_file import OutputBusy, OutputDamaged, PayloadConflict, plan_resume
from rackgate.batch.runner import main, run_batch

CASES = Path(__file__).parent.parent / "cases"
INPUTS = CASES / "inputs"
EXPECTED = {
    name: case["expected"] for name, case in json.loads((CASES / "expected.json").read_text()).items()
}


@pytest.mark.parametrize(("file", "key"), [("a", "a_torn_json"), ("b", "b_torn_utf8"), ("c", "c_no_newline")])
def test_a_torn_last_line_loses_and_doubles_nothing(file, key, tmp_path, engine, put, options_for):
    asked = put("BAT-01")
    torn = (INPUTS / f"BAT-01{file}.out.jsonl").read_bytes()
    (tmp_path / "out.jsonl").write_bytes(torn)
    plan = plan_resume(read_input(asked), torn)
    assert EXPECTED["BAT-01"][key] == {"kept": list(plan.kept), "to_run": list(plan.to_run)}
    outcome = run_batch(options_for(engine))
    assert len(plan.to_run) == outcome.sent
    lines = (tmp_path / "out.jsonl").read_bytes().splitlines()
    assert EXPECTED["BAT-01"]["after_resume"].startswith(f"{len(lines)} lines")
    assert ["c-1", "c-2", "c-3", "c-4", "c-5"] == sorted(json.loads(line)["custom_id"] for line in lines)


def test_two_runners_on_one_output_are_refused(tmp_path, engine, capsys, put, options_for):
    put("BAT-03")
    with (tmp_path / "out.jsonl").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OutputBusy):
            run_batch(options_for(engine))
        arguments = ["--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
        assert 3 == main([*arguments, "--url", engine.url, "--model", "m"])
    assert "409: another runner holds" in capsys.readouterr().err
    assert [] == engine.bodies
    assert 5 == run_batch(options_for(engine)).written


def test_another_payload_for_the_same_output_is_refused(tmp_path, engine, capsys, put, options_for):
    asked = put("BAT-03")
    run_batch(options_for(engine))
    (tmp_path / "in.jsonl").write_bytes(asked.replace(b"n 4", b"n 9"))
    with pytest.raises(PayloadConflict, match="422"):
        run_batch(options_for(engine))
    arguments = ["--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    assert 4 == main([*arguments, "--url", engine.url, "--model", "m"])
    assert "422:" in capsys.readouterr().err
    (tmp_path / "in.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(asked.splitlines()[::-1]))
    assert 0 == run_batch(options_for(engine)).sent


def test_an_output_of_strangers_or_with_unreadable_lines_is_left_alone(tmp_path, engine, put, options_for):
    put("BAT-03")
    out = tmp_path / "out.jsonl"
    for content, error in (
        (b'{"custom_id":"z"}\n', PayloadConflict),
        (b'glued{"custom_id":"c-1"}\n{"custom_id":"c-2"}\n', OutputDamaged),
        (b'{"custom_id":"c-1"}\n{"custom_id":"c-1"}\n', OutputDamaged),
        (b'{"custom_id":["c-1"]}\n', OutputDamaged),
    ):
        out.write_bytes(content)
        with pytest.raises(error):
            run_batch(options_for(engine))
        assert content == out.read_bytes()
    assert [] == engine.bodies


def test_a_full_disk_is_an_error_and_not_a_result(tmp_path, engine, monkeypatch, capsys, put):
    put("BAT-03")

    def full(self, lines):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rackgate.batch.output_file.OutputFile.append", full)
    arguments = [
        "--input",
        str(tmp_path / "in.jsonl"),
        "--output",
        str(tmp_path / "out.jsonl"),
        "--model",
        "m",
    ]
    assert 2 == main([*arguments, "--url", engine.url])
    assert "No space left" in capsys.readouterr().err


def test_a_journal_may_lie_elsewhere_and_must_be_one(tmp_path, engine, capsys, put, options_for):
    put("BAT-03")
    options = options_for(engine, journal_path=tmp_path / "elsewhere.json")
    assert run_batch(options).written == 5
    assert json.loads(options.journal_path.read_text())["tasks"] == 5
    assert not (tmp_path / "out.jsonl.journal").exists()
    options.journal_path.write_text("[]")
    with pytest.raises(OutputDamaged, match="is not a journal"):
        run_batch(options)
