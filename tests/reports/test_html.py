"""The HTML report: one honest document, whatever the run was."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from html_page import Page, page_of
from jinja2 import UndefinedError
from synthetic import Scenario, make_run, records_of

from rackgate.stages.headline_metrics import HEADLINE_METRICS
from rackgate_reports.digest.numbers import FIVE_NUMBERS
from rackgate_reports.evidence import load_run
from rackgate_reports.formats.html import _environment, render_html

pytestmark = pytest.mark.slow

FOUR_MEGABYTES = 4_000_000
HOSTILE = (
    "engine said \x1b[31m</script><script>alert(1)</script>"
    "<img src=x onerror=alert(2)> ]]> \x00\x08\ufffe end"
)


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


def test_the_footer_names_the_version_that_wrote_the_evidence(good: Path) -> None:
    assert "Made from evidence/records.jsonl of rackgate 0.1.0, SHA-256" in page_of(good).text


def test_each_of_the_five_numbers_is_one_that_a_run_records() -> None:
    assert set(FIVE_NUMBERS) <= set(HEADLINE_METRICS)


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


def test_a_value_in_a_template_is_cut_and_escaped_without_any_filter() -> None:
    template = _environment().from_string('<a title="{{ value }}">{{ value }}</a>')
    assert template.render(value='<b>\x1b"') == '<a title="&lt;b&gt;\\x1b&#34;">&lt;b&gt;\\x1b&#34;</a>'
    assert "600 more characters" in template.render(value="x" * 1000)


def test_a_name_that_a_template_misspells_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        _environment().from_string("{{ misspelt }}").render()


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
