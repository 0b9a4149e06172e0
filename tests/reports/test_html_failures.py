"""What the HTML report says of each check: its value and limit, what lies behind a failure, what to do."""

from __future__ import annotations

import re
from pathlib import Path

from html_page import page_of
from synthetic import records_of

from rackgate_reports.evidence import load_run
from rackgate_reports.formats.html import render_html


def test_every_check_has_a_row_with_its_verdict(slow: Path) -> None:
    run = load_run(slow)
    page = page_of(slow)
    expected = [record["skipped"] or record["verdict"] for record in run.of("verdict")]
    assert expected == [row["data-t"] for row in page.rows]


def test_a_failure_shows_value_limit_source_hint_and_next_step(slow: Path) -> None:
    text = page_of(slow).text
    for words in (
        "node1/gpu1 264 ms",
        "must be ≤ 120 ms",
        "95 % bounds 246 to 285 ms",
        "n = 420",
        "Limit from: MLPerf inference, interactive",
        "Compare clocks and throttle reasons",
        "--rack-stage=single_card --rack-only=node1/gpu1",
    ):
        assert words in text.replace("\N{NO-BREAK SPACE}", " ")


def test_who_has_several_unmet_rows_is_named_first(slow: Path) -> None:
    page = page_of(slow)
    unmet = [
        one
        for one in load_run(slow).of("verdict")
        if one["verdict"] in ("FAIL", "UNKNOWN") and not one["skipped"]
    ]
    mine = sum(one["entity"] == "node1/gpu1" for one in unmet)
    assert mine > 1
    assert f"node1/gpu1 {mine} rows not met" in page.text


def test_the_next_step_for_a_rack_without_a_file_names_the_simulated_one(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    cards = [{"name": "node1/gpu0"}, {"name": "node1/gpu1"}]
    with records_of(folder) as writer:
        target = {"source": "simulator, scenario hot_card", "nodes": [{"name": "node1", "cards": cards}]}
        writer.add("run", grade="simulated", profile="smoke", scenario="hot_card", target=target)
        writer.add(
            "verdict", check="a @ node1/gpu0", slo="a", stage="soak", entity="node1/gpu0", verdict="FAIL"
        )
    command = "pytest -m rack_acceptance --rack-target=sim:1x2 --rack-profile=smoke --rack-scenario=hot_card"
    assert f"{command} --rack-stage=soak --rack-only=node1/gpu0" in page_of(folder).text


def test_the_next_step_repeats_model_and_acceptance_file_and_joins_each_with_its_option(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    with records_of(folder) as writer:
        acceptance = {"files": ["shipped defaults.toml", "shipped ci.toml", "my agreed.toml"]}
        target = {"source": "http://h:1", "model": "m"}
        writer.add("run", grade="simulated", profile="ci", target=target, acceptance=acceptance)
        writer.add("verdict", check="a @ e", slo="a", stage="soak", entity="e", verdict="FAIL")
    command = "--rack-target=http://h:1 --rack-model=m '--rack-slo=my agreed.toml' --rack-profile=ci"
    assert f"pytest -m rack_acceptance {command} --rack-stage=soak --rack-only=e" in page_of(folder).text


def test_a_truth_is_shown_as_yes_or_no_and_a_message_not_twice(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with records_of(folder) as writer:
        writer.add("run", grade="cpu")
        writer.add(
            "verdict",
            check="a @ rack",
            slo="a",
            stage="soak",
            entity="rack",
            verdict="FAIL",
            value=0,
            unit="bool",
            op="==",
            bound=1,
            detail="nobody answered",
            message="FAIL a @ rack: all of it again",
        )
    text = page_of(folder).text.replace("\N{NO-BREAK SPACE}", " ")
    assert "must be = yes" in text
    assert "nobody answered" in text
    assert "all of it again" not in text


def test_the_quarantine_names_entity_and_check(slow: Path) -> None:
    assert "node1/gpu1 quarantined by single_card.ttft_p50 @ node1/gpu1" in page_of(slow).text


CHAINED = {
    "check": "single_card.ttft_p95 @ node1/gpu1",
    "slo": "single_card.ttft_p95",
    "stage": "single_card",
    "entity": "node1/gpu1",
    "verdict": "FAIL",
    "metric": "ttft_ms",
    "statistic": "p95",
    "value": 901.0,
    "unit": "ms",
    "op": "<=",
    "bound": 500.0,
    "hint": "Compare with a neighbour.",
    "layer": "hardware",
    "cause": "hw_thermal_slowdown",
    "diagnosis": [
        {
            "layer": "service",
            "name": "queueing",
            "meaning": "requests wait in the engine's queue",
            "seen": "6 requests waited",
            "next_steps": ["Take load off.", "Add engines."],
        },
        {
            "layer": "hardware",
            "name": "hw_thermal_slowdown",
            "meaning": "the card is too hot",
            "seen": "bits 0x48",
            "next_steps": ["Check coolant flow.", "Look for a loose cold plate."],
        },
    ],
    "beside": ["seen at the same time: XID 79 on node1/gpu1 (80% of the time)"],
}


def chained(folder: Path) -> Path:
    with records_of(folder) as writer:
        writer.add("run", run_id="r", grade="simulated", command_line="pytest")
        writer.add("verdict", **CHAINED)
        again = {**CHAINED, "check": "single_card.ttft_p95 @ node1/gpu0", "entity": "node1/gpu0"}
        writer.add("verdict", **again)
    return folder


def test_a_failure_shows_its_whole_chain_from_the_outside_in(tmp_path: Path) -> None:
    html = render_html(load_run(chained(tmp_path / "run")))
    crumbs = re.search(r'<ol class="crumbs">(.*?)</ol>', html, re.DOTALL)
    assert re.findall(r'<li class="(\w+)">(\w+)</li>', crumbs[1]) == [
        ("off", "client"),
        ("off", "network"),
        ("on", "service"),
        ("off", "model"),
        ("off", "container"),
        ("off", "driver"),
        ("lead", "hardware"),
    ]
    links = html.split('<ol class="links">')[1].split('<div class="beside">')[0]
    assert links.index("<b>service</b>") < links.index("<b>hardware</b>")
    assert "The card is too hot." in links
    assert "node1/gpu1: bits 0x48; node1/gpu0: bits 0x48" in links
    assert "<li>Look for a loose cold plate.</li>" in links


def test_a_failure_shows_what_was_seen_at_the_same_time_as_no_proof(tmp_path: Path) -> None:
    html = render_html(load_run(chained(tmp_path / "run")))
    beside = html.split('<div class="beside">')[1].split("</div>")[0]
    assert "no proof of a cause" in beside
    assert "<li>XID 79 on node1/gpu1 (80% of the time)</li>" in beside


def test_the_first_step_of_the_cause_comes_before_the_hint(tmp_path: Path) -> None:
    html = render_html(load_run(chained(tmp_path / "run")))
    steps = re.findall(r"<p>(.*?)</p>", html.split("<h4>What to do</h4>")[1])
    assert steps[:2] == ["Check coolant flow.", "Compare with a neighbour."]


def test_a_failure_of_an_older_run_has_no_chain(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    old = {name: value for name, value in CHAINED.items() if name not in ("diagnosis", "layer", "cause")}
    with records_of(folder) as writer:
        writer.add("run", run_id="r", grade="simulated", command_line="pytest")
        writer.add("verdict", **old)
    assert '<div class="chain">' not in render_html(load_run(folder))
