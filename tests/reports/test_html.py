"""The HTML report: one honest document, whatever the run was."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path  # noqa: TC003 - pytest reads annotations

import pytest
from synthetic import Scenario, make_run, records_of

from rackgate_reports.evidence import load_run
from rackgate_reports.html import render_html

FOUR_MEGABYTES = 4_000_000
HOSTILE = (
    "engine said \x1b[31m</script><script>alert(1)</script>"
    "<img src=x onerror=alert(2)> ]]> \x00\x08\ufffe end"
)


class Page(HTMLParser):
    """What a browser would see: elements, attributes, text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.rows: list[dict[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "tr" and dict(attrs).get("data-t"):
            self.rows.append({name: value or "" for name, value in attrs})
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def page_of(folder: Path) -> Page:
    return Page(render_html(load_run(folder)))


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return make_run(tmp_path / "good", Scenario(grade="accelerator"))


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    return make_run(tmp_path / "slow", Scenario(slow="node1/gpu1"))


def test_the_document_asks_nothing_of_any_network(slow: Path) -> None:
    text = render_html(load_run(slow))
    page = Page(text)
    loading = [
        (tag, name, value)
        for tag, name, value in page.attributes
        if name in ("src", "href", "action", "srcset", "data", "poster") and not value.startswith("#")
    ]
    assert loading == []
    assert re.findall(r"@import|url\((?!#)", text) == []
    assert "link" not in page.tags
    assert "iframe" not in page.tags


def test_only_the_two_inline_blocks_of_ours_may_run(slow: Path) -> None:
    page = page_of(slow)
    policy = next(value for tag, name, value in page.attributes if tag == "meta" and "default-src" in value)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert [name for _, name, _ in page.attributes if name.startswith("on") or name == "style"] == []


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


def told(value: str | None) -> dict[str, str | None]:
    return {"value": value, "reason": None if value else "no_permission", "detail": ""}


def with_facts(folder: Path, nodes: dict[str, dict[str, dict[str, str | None]]]) -> Page:
    run = load_run(folder)
    records = [{"kind": "facts", "node": node, "facts": facts} for node, facts in nodes.items()]
    by_kind = {**run.by_kind, "facts": tuple(records)}
    return Page(render_html(replace(run, by_kind=by_kind)))


def test_the_node_that_differs_stands_beside_what_most_nodes_say(slow: Path) -> None:
    kernels = {"n1": "6.8.0-60", "n2": "6.8.0-60", "n3": "6.8.0-41"}
    nodes = {node: {"cuda": told("13.0"), "kernel": told(one)} for node, one in kernels.items()}
    text = with_facts(slow, nodes).text
    assert "3 nodes told their facts" in text
    assert "kernel 6.8.0-60 6.8.0-41 n3 cuda 13.0" in text  # what differs comes first


def test_without_a_majority_all_values_stand_side_by_side(slow: Path) -> None:
    nodes = {"n1": {"kernel": told("a")}, "n2": {"kernel": told("<b>")}, "n3": {"kernel": told(None)}}
    assert "kernel no majority a n1 <b> n2 n3" in with_facts(slow, nodes).text


def test_a_run_that_read_no_host_has_no_such_table(slow: Path) -> None:
    assert "The same on all nodes" not in page_of(slow).text


def test_the_quarantine_names_entity_and_check(slow: Path) -> None:
    assert "node1/gpu1 quarantined by single_card.ttft_p50 @ node1/gpu1" in page_of(slow).text


def test_five_numbers_show_infinity_as_such_and_requests_per_minute(slow: Path) -> None:
    text = page_of(slow).text.replace("\N{NO-BREAK SPACE}", " ")
    assert "∞ ms failed requests reach into this percentile" in text
    assert "req/min" in text
    assert "13.9 %" in text


@pytest.mark.parametrize("damage", ["missing", "broken"])
def test_a_chart_says_why_it_is_empty(good: Path, damage: str) -> None:
    for path in (good / "evidence").rglob("*.parquet"):
        if path.is_file():
            path.unlink() if damage == "missing" else path.write_bytes(b"PAR1 not really PAR1")
    text = page_of(good).text
    assert "No chart: samples/single_card-single.parquet " in text
    assert "No data:" in text
    assert ("no telemetry" if damage == "missing" else "part-0000.parquet cannot be read") in text


def test_samples_outside_the_evidence_are_not_read(good: Path) -> None:
    records = good / "evidence" / "records.jsonl"
    records.write_bytes(records.read_bytes().replace(b"samples/soak-steady", b"../../../etc/soak-steady"))
    assert "lies outside the evidence" in page_of(good).text


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with records_of(folder) as writer:
        writer.add(
            "run",
            run_id=HOSTILE,
            profile=HOSTILE,
            grade=HOSTILE,
            stages=[HOSTILE],
            command_line=HOSTILE,
            target={"name": HOSTILE, "model": HOSTILE, "nodes": [{"cards": [{"name": HOSTILE}]}]},
            versions={HOSTILE: HOSTILE},
            partial=True,
            partial_why=[HOSTILE],
        )
        writer.add(
            "verdict",
            check=HOSTILE,
            slo=HOSTILE,
            stage=HOSTILE,
            entity=HOSTILE,
            verdict="FAIL",
            metric=HOSTILE,
            statistic=HOSTILE,
            value=1.0,
            unit=HOSTILE,
            op=HOSTILE,
            bound=2.0,
            hint=HOSTILE,
            message=HOSTILE,
            definition=HOSTILE,
            slo_source=HOSTILE,
            skipped="",
        )
        writer.add("gate", entity=HOSTILE, stages=[HOSTILE], by=HOSTILE, verdict=HOSTILE, text=HOSTILE)
        writer.add("stage", stage=HOSTILE, phase="begin")
        writer.now_s = 9
        writer.add("fault", fault=HOSTILE, entity=HOSTILE, moment="inject", ok=True)
        writer.now_s = 20
        writer.add("load", stage=HOSTILE, load=HOSTILE, samples=HOSTILE.replace("\x00", ""), detail=HOSTILE)
    text = render_html(load_run(folder))
    page = Page(text)
    assert "img" not in page.tags
    assert page.tags.count("script") == 2
    assert [name for _, name, _ in page.attributes if name.startswith("on")] == []
    assert [mark for mark in "\x00\x08\x1b\ufffe" if mark in text] == []
    assert "\\x1b[31m</script>" in page.text


def test_records_that_are_not_utf8_are_shown_not_fatal(good: Path) -> None:
    records = good / "evidence" / "records.jsonl"
    records.write_bytes(records.read_bytes().replace(b"hall-b-rack-07", b"hall-\xff\xfe-07"))
    assert "hall-\ufffd\ufffd-07" in page_of(good).text


def test_a_message_of_fifty_megabytes_is_cut_and_said_so(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with records_of(folder) as writer:
        writer.add("run", run_id="r", grade="simulated")
        writer.add(
            "verdict",
            check="a @ b",
            slo="a",
            stage="soak",
            entity="b",
            verdict="UNKNOWN",
            reason="died",
            message="█" * 16_000_000,
            detail="█" * 1000,
        )
    text = render_html(load_run(folder))
    assert len(text.encode()) < 100_000
    assert "more characters" in text


def test_thousands_of_checks_stay_below_four_megabytes(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Scenario(slow="node1/gpu1", extra_checks=9000))
    text = render_html(load_run(run))
    page = Page(text)
    assert len(text.encode()) < FOUR_MEGABYTES
    assert [row["data-t"] for row in page.rows].count("FAIL") == 3
    assert "The worst 5,000 of 9,037 checks are shown" in page.text


def test_a_day_of_a_large_rack_stays_below_four_megabytes(tmp_path: Path) -> None:
    scenario = Scenario(nodes=9, cards=8, stretch=350, telemetry_hz=0.05, requests=300, slow="node3/gpu1")
    run = make_run(tmp_path / "run", scenario)
    text = render_html(load_run(run))
    assert len(text.encode()) < FOUR_MEGABYTES
    assert "72 cards, least to greatest, and median" in Page(text).text
    assert "node3/gpu1 temperature" in text


def test_the_data_of_the_timeline_is_json_with_one_value_per_bin(slow: Path) -> None:
    text = render_html(load_run(slow))
    found = re.search(r'class="timeline-data">(.*?)</script>', text)
    assert found is not None
    data = json.loads(found[1])
    assert {len(series["v"]) for series in data["series"]} == {data["bins"]}
    assert {"TTFT P99", "node1/gpu1 power", "node1/gpu1 throttle"} <= {
        series["name"] for series in data["series"]
    }


def test_a_verdict_is_a_word_and_never_a_colour_alone(slow: Path) -> None:
    text = render_html(load_run(slow))
    badges = re.findall(r'<span class="badge[^"]*">(.*?)</span>', text)
    assert badges
    assert [badge for badge in badges if not re.sub(r"<[^>]*>", "", badge).strip()] == []


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
    crumbs = re.search(r'<ol class="crumbs">(.*?)</ol>', html)
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
    todo = html.split("<h4>What to do</h4>")[1]
    assert todo.startswith("<p>Check coolant flow.</p><p>Compare with a neighbour.</p>")


def test_a_failure_of_an_older_run_has_no_chain(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    old = {name: value for name, value in CHAINED.items() if name not in ("diagnosis", "layer", "cause")}
    with records_of(folder) as writer:
        writer.add("run", run_id="r", grade="simulated", command_line="pytest")
        writer.add("verdict", **old)
    assert '<div class="chain">' not in render_html(load_run(folder))
