"""The Markdown summary for CI job pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import Scenario, make_run, records_of

from rackgate_reports.evidence import load_run
from rackgate_reports.formats.html import render_html
from rackgate_reports.formats.markdown import LIMIT_BYTES, render_summary


def summary_of(folder: Path) -> str:
    return render_summary(load_run(folder)).replace("\N{NO-BREAK SPACE}", " ")


def test_the_summary_tells_verdict_grade_scope_stages_numbers_and_next_step(tmp_path: Path) -> None:
    text = summary_of(make_run(tmp_path / "run", Scenario(slow="node1/gpu1")))
    for words in (
        "# ❌ NOT ACCEPTED",
        "**3 of 4 cards qualified**",
        "**SIMULATED.**",
        "Never valid for sign-off",
        "* Scope: tested 4 of 4 cards on 2 nodes",
        "| Single card | ❌ FAIL | 3 FAIL, 1 UNKNOWN, 16 PASS | 40.0 s |",
        "| Soak, steady | 2,688 tok/s | 218 ms | 0 % | 2,268 W | 64.2 °C |",
        "<code>node1/gpu1</code>: 264 ms, n = 420",
        "--rack-stage=single_card --rack-only=node1/gpu1",
        "## How to reproduce",
    ):
        assert words in text


def test_an_interrupted_run_is_said_first(tmp_path: Path) -> None:
    text = summary_of(make_run(tmp_path / "run", Scenario(interrupted_in="two_card")))
    assert text.startswith("# ❓ INTERRUPTED\n")
    assert "never accepted" in text


def test_an_accepted_run_has_no_list_of_failures(tmp_path: Path) -> None:
    text = summary_of(make_run(tmp_path / "run", Scenario(grade="accelerator")))
    assert text.startswith("# ✅ ACCEPTED\n")
    assert "What failed" not in text
    assert "SIMULATED" not in text


def test_a_failure_has_its_chain_on_one_line_and_what_was_seen_beside(tmp_path: Path) -> None:
    link = {"layer": "service", "name": "queueing", "meaning": "requests wait", "seen": "6 waited"}
    heat = {"layer": "hardware", "name": "hw_thermal_slowdown", "meaning": "too hot", "seen": "bits 0x48"}
    row = {"slo": "soak.x", "stage": "soak", "verdict": "FAIL", "metric": "m", "value": 2.0, "bound": 1.0}
    with records_of(tmp_path / "run") as writer:
        writer.add("run", run_id="r", grade="simulated", command_line="pytest")
        chain = {"layer": "hardware", "cause": "hw_thermal_slowdown", "diagnosis": [link, heat]}
        writer.add("verdict", check="soak.x @ a", entity="a", beside=["XID 79 on a"], **chain, **row)
        plain = [{"layer": "client", "name": "", "meaning": "the row's limit is not held"}]
        other = {**row, "slo": "soak.y"}
        writer.add("verdict", check="soak.y @ a", entity="a", layer="client", diagnosis=plain, **other)
    text = summary_of(tmp_path / "run")
    assert "  * Chain: **service**: requests wait (6 waited) → **hardware**: too hot (bits 0x48)\n" in text
    assert "  * Beside: XID 79 on a\n" in text
    assert "  * Layer: client\n" in text


def test_warnings_are_said_first_and_stand_beside_what_was_measured_under_them(tmp_path: Path) -> None:
    row = {"stage": "soak", "metric": "m", "value": 2.0, "bound": 3.0}
    with records_of(tmp_path / "run") as writer:
        writer.add("run", run_id="r", grade="simulated", command_line="pytest")
        writer.add("verdict", check="soak.w @ a", slo="soak.w", entity="a", verdict="WARN", **row)
        under = ["open warning: soak.w @ a"]
        writer.add(
            "verdict", check="soak.x @ a", slo="soak.x", entity="a", verdict="PASS", beside=under, **row
        )
        writer.add("verdict", check="soak.x @ b", slo="soak.x", entity="b", verdict="PASS", **row)
    said = "With 1 warning: soak.w &#64; a; 1 value measured there later say so."
    assert f"* ⚠️ {said}\n" in summary_of(tmp_path / "run")
    page = render_html(load_run(tmp_path / "run"))
    assert 1 == page.count("open warning: soak.w @ a")


def folder_with_failures(folder: Path, number: int, message: str) -> Path:
    with records_of(folder) as writer:
        writer.add("run", run_id="r", grade="simulated", command_line=message)
        for index in range(number):
            writer.add(
                "verdict",
                check=f"soak.x{index} @ rack",
                slo=f"soak.x{index}",
                stage="soak",
                entity=message,
                verdict="UNKNOWN",
                metric="m",
                reason="died",
                detail=message,
                hint=message,
            )
    return folder


@pytest.mark.parametrize("number", [1, 3000])
def test_the_summary_is_bounded_whatever_failed(tmp_path: Path, number: int) -> None:
    text = summary_of(folder_with_failures(tmp_path / "run", number, "█" * 5000))
    assert len(text.encode()) < LIMIT_BYTES
    assert "## How to reproduce" in text
    assert ("more rows: see report.html" in text) == (number > 1)


def test_text_of_the_run_cannot_break_the_page(tmp_path: Path) -> None:
    text = summary_of(
        folder_with_failures(tmp_path / "run", 1, "a | b\n# c </code><script> @everyone \x1b \x00")
    )
    assert "<script>" not in text
    assert "\n# c" not in text
    assert [mark for mark in "\x1b\x00" if mark in text] == []
