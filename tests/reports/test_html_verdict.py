"""What the HTML report says of the whole run: accepted or not, of what grade, and whether it is whole."""

from __future__ import annotations

from pathlib import Path

from html_page import page_of
from synthetic import Scenario, make_run, records_of

from rackgate_reports.evidence import load_run


def test_an_accepted_run_says_so(good: Path) -> None:
    page = page_of(good)
    assert " ACCEPTED 4 of 4 cards qualified" in page.text
    assert "NOT ACCEPTED" not in page.text
    assert "SIMULATED" not in page.text
    assert "Nothing failed" in page.text


def test_what_a_soak_proves_is_said_and_nothing_if_it_proves_nothing(good: Path, slow: Path) -> None:
    assert "Soak: 8 card-hours prove little." in page_of(good).text
    assert "card-hours" not in page_of(slow).text


def test_a_simulated_run_is_marked_even_if_accepted(tmp_path: Path) -> None:
    page = page_of(make_run(tmp_path / "run"))
    assert page.text.startswith("SIMULATED · ACCEPTED: hall-b-rack-07 SIMULATED The rack was simulated.")
    assert "Never valid for sign-off" in page.text


def test_a_scope_is_part_of_the_verdict(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Scenario(headline="ACCEPTED WITHIN SCOPE tenant: 61 of 118 rows"))
    assert "ACCEPTED WITHIN SCOPE tenant 61 of 118 rows" in page_of(run).text


def test_a_headline_cannot_say_more_than_the_end_record(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Scenario(accepted=False, headline="ACCEPTED: all is well"))
    assert " NOT ACCEPTED " in page_of(run).text


def test_an_end_that_contradicts_the_verdicts_is_not_accepted(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Scenario(slow="node1/gpu1", accepted=True))
    page = page_of(run)
    assert " NOT ACCEPTED " in page.text
    assert "The end record says accepted, but 5 checks did not pass." in page.text


def test_changed_records_are_told_and_not_accepted(good: Path) -> None:
    records = good / "evidence" / "records.jsonl"
    records.write_bytes(records.read_bytes().replace(b'"value":64.2', b'"value":54.2', 1))
    page = page_of(good)
    assert " NOT ACCEPTED " in page.text
    assert "changed afterwards" in page.text


def test_a_run_without_its_end_is_interrupted(tmp_path: Path) -> None:
    page = page_of(make_run(tmp_path / "run", Scenario(interrupted_in="soak")))
    assert " INTERRUPTED " in page.text
    assert "never accepted" in page.text
    assert "29 of 37 checks have a verdict" in page.text
    assert {row["data-t"] for row in page.rows} == {"PASS", "no_record"}
    assert len(page.rows) == 37


def test_a_torn_last_line_is_told(good: Path) -> None:
    records = good / "evidence" / "records.jsonl"
    records.write_bytes(records.read_bytes()[:-40])
    page = page_of(good)
    assert " INTERRUPTED " in page.text
    assert "is not a whole record" in page.text


def test_an_empty_run_still_has_a_report(tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "records.jsonl").write_bytes(b"")
    page = page_of(tmp_path)
    assert " INTERRUPTED " in page.text
    assert "The run asked for no checks." in page.text
    assert "No chart:" in page.text


def test_a_partial_run_says_why(tmp_path: Path) -> None:
    assert (
        "Partial run (-k ttft): it cannot be certified."
        in page_of(make_run(tmp_path / "run", Scenario(partial=True))).text
    )


def test_the_grade_is_the_worst_that_any_record_says(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with records_of(folder) as writer:
        writer.add("run", grade="unproven", target={"name": "x"})
        writer.add("event", event="grade", grade="simulated", text="endpoint is the simulated engine")
        writer.add("event", event="leftover", text="nothing of a grade")
    assert "simulated" == load_run(folder).grade
    assert page_of(folder).text.startswith("SIMULATED · INTERRUPTED")
    raised = tmp_path / "raised"
    with records_of(raised) as writer:
        writer.add("run", grade="unproven", target={"name": "x"})
        writer.add("end", grade="accelerator", accepted=True)
    assert "UNPROVEN Nothing shows what hardware answered" in page_of(raised).text
