from __future__ import annotations

import json
from collections import Counter

import pytest

from rackgate.simulator.batch_runner import main
from rackgate.simulator.scenarios import scenarios
from rackgate.simulator.settings import RackSettings, simulated_target


@pytest.fixture
def batch(tmp_path, rack):
    """Run a batch of 20 whose first run was killed after 10 records and a torn one."""
    tasks = [
        {
            "custom_id": f"task-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": f"say {number}"}], "max_tokens": 4},
        }
        for number in range(20)
    ]
    source, output = tmp_path / "input.jsonl", tmp_path / "output.jsonl"
    source.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    where = ["--input", str(source), "--output", str(output)]
    where += ["--url", rack.target.gateway.url, "--model", rack.target.model]

    def run(defect):
        assert main(["--defect", defect, *where]) == 0
        if defect == "mute":
            return [], output.exists()
        lines = output.read_bytes().splitlines(keepends=True)
        output.write_bytes(b"".join(lines[:10]) + lines[10][:20])
        assert main(["--defect", defect, *where]) == 0
        before = [json.loads(line) for line in lines[:10]]
        return before, [json.loads(line) for line in output.read_bytes().splitlines()]

    return run


def ids(records):
    return Counter(record["custom_id"] for record in records)


def test_a_batch_that_is_run_again_is_complete_with_each_record_once(batch):
    before, after = batch("none")
    assert ids(after) == {f"task-{number}": 1 for number in range(20)}
    assert after[:10] == before
    assert {record["response"]["status_code"] for record in after} == {200}


def test_duplicate_writes_records_twice(batch):
    _, after = batch("duplicate")
    assert sorted(ids(after).values()) == [1] * 17 + [2] * 3


def test_lose_leaves_records_out(batch):
    _, after = batch("lose")
    assert len(ids(after)) == len(after) == 17


def test_overwrite_changes_finished_records(batch):
    before, after = batch("overwrite")
    assert len(ids(after)) == len(after) == 20
    changed = [old["custom_id"] for old, new in zip(before, after, strict=False) if old != new]
    assert changed[:3] == [record["custom_id"] for record in before[:3]]
    assert after[3:10] == before[3:]


def test_mute_reports_success_and_writes_nothing(batch):
    assert batch("mute") == ([], False)


@pytest.mark.parametrize("name", ["healthy", "duplicate_batch_records", "mute_batch"])
def test_the_target_names_the_command_with_the_scenario_s_defect(name):
    command = simulated_target(RackSettings(scenario=name)).batch.command
    assert command[command.index("--defect") + 1] == scenarios()[name].batch
    assert {"{input}", "{output}", "{url}", "{model}"} < set(command)


def test_invent_writes_records_that_nobody_asked_for(batch):
    _, after = batch("invent")
    assert len([each for each in ids(after) if each.endswith("-again")]) == 3
    assert len(after) == 23


def test_fail_ends_some_records_with_an_error(batch):
    _, after = batch("fail")
    assert sorted(ids(after).values()) == [1] * 20
    assert [record["response"]["status_code"] for record in after].count(404) == 3
