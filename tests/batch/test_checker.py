from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.batch.checker import check_batch
from rackgate.batch.exercise import make_input
from rackgate.batch.input_file import InputRefused
from rackgate.batch.results import answers, read_results, summarise_batch
from rackgate.nouns.verdict import Verdict

CASES = Path(__file__).parent.parent / "cases"
INPUTS = CASES / "inputs"
EXPECTED = {
    name: case["expected"] for name, case in json.loads((CASES / "expected.json").read_text()).items()
}


def asked(count: int) -> bytes:
    line = {"method": "POST", "url": "/v1/chat/completions", "body": {"messages": []}}
    return b"".join(json.dumps({"custom_id": f"t{n}", **line}).encode() + b"\n" for n in range(count))


def record(custom_id: str, text: str = "same") -> bytes:
    body = {"choices": [{"message": {"content": text}}]}
    value = {"custom_id": custom_id, "response": {"status_code": 200, "body": body}, "error": None}
    return json.dumps(value).encode() + b"\n"


def records(*custom_ids: str) -> bytes:
    return b"".join(map(record, custom_ids))


def test_results_out_of_order_are_right():
    question, output = ((INPUTS / f"BAT-03.{kind}.jsonl").read_bytes() for kind in ("input", "out"))
    assert EXPECTED["BAT-03"]["by_id"] == answers(output)
    report = check_batch(question, output, before_retry=b"", after_full_retry=output)
    assert (Verdict.PASS, 5, 5) == (report.verdict, report.tasks, report.terminal)


def test_success_needs_no_error_a_200_and_a_choice():
    output = (INPUTS / "BAT-04.out.jsonl").read_bytes()
    summary = summarise_batch(output)
    labels = {record.custom_id: record.label for record in read_results(output).records}
    assert EXPECTED["BAT-04"] == {**labels, "succeeded": summary.completed, "failed": summary.failed}


def test_completed_means_finished_and_not_successful():
    batch = json.loads((INPUTS / "BAT-05.batch.json").read_text())
    summary = summarise_batch(errors=(INPUTS / "BAT-05.errors.jsonl").read_bytes(), batch=batch)
    assert EXPECTED["BAT-05"] == {
        "batch_ok": summary.ok,
        "completed": summary.completed,
        "failed": summary.failed,
        "total": summary.total,
        "first_error": summary.first_error,
    }


def test_an_expired_batch_keeps_its_results_and_sends_only_the_rest():
    output, errors = ((INPUTS / f"BAT-12.{kind}.jsonl").read_bytes() for kind in ("out", "errors"))
    summary = summarise_batch(output, errors)
    assert EXPECTED["BAT-12"] == {
        "keep": list(summary.keep),
        "resubmit": list(summary.resubmit),
        "batch_ok": summary.ok,
    }
    report = check_batch(
        b"".join(asked(1).replace(b"t0", f"c-{n}".encode()) for n in range(1, 6)), output, errors
    )
    assert (5, ("c-3", "c-4", "c-5"), ()) == (report.terminal, report.failed, report.lost)


def test_a_real_refusal_is_not_sent_again():
    summary = summarise_batch((INPUTS / "BAT-04.out.jsonl").read_bytes())
    assert () == summary.resubmit


def test_a_batch_whose_files_lack_a_record_is_not_ok():
    batch = {"status": "completed", "request_counts": {"total": 3, "completed": 3, "failed": 0}}
    assert not summarise_batch(records("t0", "t1"), batch=batch).ok
    assert summarise_batch(records("t0", "t1", "t2"), batch=batch).ok
    assert not summarise_batch().ok


@pytest.mark.parametrize(
    ("field", "expected", "output", "before", "again"),
    [
        ("lost", ("t1",), records("t0", "t2"), b"", None),
        ("duplicated", ("t1",), records("t0", "t1", "t2", "t1"), b"", None),
        ("unexpected", ("t9",), records("t0", "t1", "t2", "t9"), b"", None),
        ("unreadable", (2,), record("t0") + b'{"custom_id":"t1","resp\n' + records("t1", "t2"), b"", None),
        ("unreadable", (2,), record("t0") + b'{"no":"id"}\n' + records("t1", "t2"), b"", None),
        ("unreadable", (4,), records("t0", "t1", "t2") + b"[1]", b"", None),
        ("overwritten", ("t1",), records("t0", "t1", "t2"), record("t1", "other"), None),
        ("overwritten", ("t1",), records("t0", "t2"), records("t1"), None),
        ("regenerated", ("t1",), records("t0", "t1", "t2"), b"", records("t0", "t1", "t2", "t1")),
        ("regenerated", ("t1",), records("t0", "t1", "t2"), b"", records("t0", "t2") + record("t1", "x")),
        ("regenerated", ("t2",), records("t0", "t1", "t2"), b"", records("t0", "t1")),
    ],
)
def test_each_kind_of_damage_is_found_and_named(field, expected, output, before, again):
    report = check_batch(
        asked(3), output, before_retry=before, after_full_retry=output if again is None else again
    )
    assert expected == getattr(report, field)
    assert Verdict.FAIL == report.verdict


def test_everything_in_place_passes_and_an_unseen_half_is_unknown():
    output = records("t2", "t0", "t1")
    seen = check_batch(asked(3), output, before_retry=records("t2"), after_full_retry=output)
    assert (Verdict.PASS, ()) == (seen.verdict, seen.lost)
    assert Verdict.UNKNOWN == check_batch(asked(3), output, before_retry=b"").verdict
    assert Verdict.UNKNOWN == check_batch(asked(3), output, after_full_retry=output).verdict


def test_nothing_read_is_unknown_but_an_emptied_output_is_a_failure():
    assert Verdict.UNKNOWN == check_batch(asked(3), b"", before_retry=b"", after_full_retry=b"").verdict
    emptied = check_batch(asked(3), b"", before_retry=records("t0"), after_full_retry=b"")
    assert (Verdict.FAIL, ("t0",)) == (emptied.verdict, emptied.overwritten)


def test_a_torn_line_before_the_retry_was_not_final():
    torn = records("t0") + record("t1", "cut")[:-1]
    output = records("t0", "t1", "t2")
    assert () == check_batch(asked(3), output, before_retry=torn).overwritten


def test_an_expired_record_may_give_way_to_an_answer():
    expired = b'{"custom_id":"t0","response":null,"error":{"code":"batch_expired","message":"late"}}\n'
    report = check_batch(asked(1), records("t0"), before_retry=expired, after_full_retry=records("t0"))
    assert Verdict.PASS == report.verdict


def test_answers_are_compared_with_the_undisturbed_run():
    undisturbed = record("t0", "a") + record("t1", "b") + record("t2", "c")
    report = check_batch(
        asked(3), record("t2", "c") + record("t0", "a") + record("t1", "X"), undisturbed=undisturbed
    )
    assert ("t1",) == report.mismatched


def test_an_input_that_is_no_batch_is_an_error_and_not_a_verdict():
    with pytest.raises(InputRefused):
        check_batch(b"", records("t0"))


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_no_bytes_raise_and_no_bytes_pass(output, before):
    report = check_batch(asked(2), output, before_retry=before, after_full_retry=output)
    assert Verdict.PASS != report.verdict


@given(st.lists(st.sampled_from(["t0", "t1", "t2", "t3", "x"]), max_size=12))
def test_the_counts_are_those_of_a_multiset(custom_ids):
    report = check_batch(asked(4), records(*custom_ids))
    tasks = [f"t{number}" for number in range(4)]
    assert {task for task in tasks if task not in custom_ids} == set(report.lost)
    assert {name for name in custom_ids if custom_ids.count(name) > 1} == set(report.duplicated)
    assert ("x" in custom_ids) == bool(report.unexpected)
    assert report.tasks == report.terminal + len(report.lost) + len(set(report.duplicated) & set(tasks))


@given(st.integers(2, 200), st.integers(0, 2**31))
def test_an_exercise_has_unique_ids_and_repeated_texts(tasks, seed):
    lines = [json.loads(line) for line in make_input(tasks=tasks, model="m", seed=seed).splitlines()]
    assert tasks == len({line["custom_id"] for line in lines}) == len(lines)
    texts = [line["body"]["messages"][0]["content"] for line in lines]
    assert tasks < 4 or len(set(texts)) < tasks
