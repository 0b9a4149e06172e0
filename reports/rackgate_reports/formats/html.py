"""The HTML report: one file that asks nothing of any network, below 4 MB however long the run was."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import TYPE_CHECKING

from rackgate.nouns.slo import STAGES
from rackgate_reports.charts.distribution import distribution_panel
from rackgate_reports.charts.svg import COLOURS
from rackgate_reports.charts.timeline import timeline_figure
from rackgate_reports.digest.checks import CheckRow, check_rows
from rackgate_reports.digest.economy import economy_of, economy_table
from rackgate_reports.digest.latency import Latencies, joined, read_latencies
from rackgate_reports.digest.node_differences import same_table
from rackgate_reports.digest.overview import (
    GRADES,
    endurance_of,
    headline_of,
    numbers_of,
    stages_of,
    troubles_of,
)
from rackgate_reports.digest.provenance import facts_section
from rackgate_reports.formatting import escape, plural
from rackgate_reports.page.badges import SPRITE
from rackgate_reports.page.sections import (
    glossary_section,
    hero,
    quarantine_section,
    stages_section,
)
from rackgate_reports.page.tables import checks_table, five_numbers_table
from rackgate_reports.page.troubles import troubles_section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rackgate_reports.evidence import RunEvidence


_MOST_PANELS = 24


def render_html(run: RunEvidence) -> str:
    """Return the whole document."""
    rows = check_rows(run)
    headline = headline_of(run, rows)
    troubles = troubles_of(rows)
    loads = _loads(run)
    colours = _colours(run, loads)
    suspects = tuple(dict.fromkeys(str(gate["entity"]) for gate in run.of("gate") if gate.get("entity")))
    quarantine = quarantine_section(run, rows)
    timeline = timeline_figure(run, loads, colours, suspects)
    intro = "Values are judged against limits agreed beforehand; a check without a value is not accepted."
    body = "".join(
        (
            hero(run, headline, rows),
            _navigation(bool(quarantine)),
            '<main class="wrap">',
            _section("stages", "Stages", "", stages_section(stages_of(run, rows))),
            _section("troubles", "What failed and what to do", "", troubles_section(run, troubles, headline)),
            quarantine,
            _section("numbers", "Five numbers", _NUMBERS, five_numbers_table(numbers_of(run)) + _proven(run)),
            _section("economy", "Energy and cost", _ECONOMY, economy_table(run, economy_of(run))),
            _section("latency", "Latency by percentile", _LATENCY, _panels(run, loads, rows, colours)),
            _section("timeline", "Timeline", _TIMELINE, f'<figure class="time">{timeline}</figure>'),
            _section("checks", "Every check", intro, checks_table(rows)),
            _section("facts", "Run and rack", "", facts_section(run) + same_table(run)),
            _section("definitions", "Definitions", _DEFINITIONS, glossary_section(run, rows)),
            "</main>",
            _footer(run),
        )
    )
    grade = "" if run.grade == "accelerator" else f"{GRADES.get(run.grade, ('UNKNOWN GRADE',))[0]} · "
    return _document(f"{grade}{headline.word}: {_name(run)}", body)


_NUMBERS = "For the rack as a whole, per stage and load. Failed requests count as infinite in P99."
_ECONOMY = (
    "Of every load whose power was measured, and of each class of work over all its loads. The cards by "
    "their own power, whole nodes by their chassis; definitions stand at the end."
)
_LATENCY = (
    "Time to first token, at each percentile of all requests. Every further nine takes equal room, so that "
    "the tail is not hidden. The curve must stay under the marked limits; failed requests stand at infinity."
)
_TIMELINE = (
    "One clock for everything: what the cards did while requests waited. Point at it, or focus it and use "
    "the arrow keys, to read values."
)
_DEFINITIONS = "Two tools that mean different things by one name cannot be compared. These are ours."


def _section(identity: str, title: str, intro: str, content: str) -> str:
    words = f'<p class="intro">{intro}</p>' if intro else ""
    return f'<section id="{identity}"><h2>{title}</h2>{words}{content}</section>'


def _proven(run: RunEvidence) -> str:
    text = endurance_of(run)
    return f'<p class="note">{escape(text, 300)}.</p>' if text else ""


def _navigation(quarantine: bool) -> str:  # noqa: FBT001 (the one thing that varies)
    names = [
        "stages",
        "troubles",
        "quarantine",
        "numbers",
        "economy",
        "latency",
        "timeline",
        "checks",
        "facts",
        "definitions",
    ]
    titles = [
        "Stages",
        "Failures",
        "Quarantine",
        "Five numbers",
        "Energy",
        "Latency",
        "Timeline",
        "Checks",
        "Run",
        "Definitions",
    ]
    links = "".join(
        f'<a href="#{name}">{title}</a>'
        for name, title in zip(names, titles, strict=True)
        if quarantine or name != "quarantine"
    )
    return f'<nav aria-label="Sections"><div class="wrap">{links}</div></nav>'


def _loads(run: RunEvidence) -> tuple[Latencies, ...]:
    """Read all loads; those of one stage and name are one."""
    groups: dict[tuple[str, str], list[Latencies]] = {}
    for record in run.of("load"):
        one = read_latencies(run, record)
        groups.setdefault((one.stage, one.load), []).append(one)
    return tuple(joined(parts) for parts in groups.values())


def _colours(run: RunEvidence, loads: Sequence[Latencies]) -> Mapping[str, int]:
    target = run.run.get("target")
    nodes = target.get("nodes") if isinstance(target, dict) else None
    cards = [
        str(card.get("name"))
        for node in (nodes if isinstance(nodes, list) else ())
        if isinstance(node, dict)
        for card in node.get("cards") or ()
        if isinstance(card, dict)
    ]
    names = dict.fromkeys([*cards, *(name for load in loads for name in load.engines)])
    return {name: index % COLOURS for index, name in enumerate(names)}


def _panels(
    run: RunEvidence, loads: Sequence[Latencies], rows: Sequence[CheckRow], colours: Mapping[str, int]
) -> str:
    if not loads:
        return '<p class="empty">No chart: the run offered no load.</p>'
    panels = "".join(
        distribution_panel(load.without(_quarantined(run, load.stage)), _limits(load, rows), colours)
        for load in loads[:_MOST_PANELS]
    )
    rest = len(loads) - _MOST_PANELS
    more = f'<p class="note">{plural(rest, "more load")} not drawn.</p>' if rest > 0 else ""
    return f'<div class="panels">{panels}</div>{more}'


def _quarantined(run: RunEvidence, stage: str) -> frozenset[str]:
    """Return the engines that earlier stages took out: they are not judged in this one."""
    place = {name: number for number, name in enumerate(STAGES)}
    return frozenset(
        str(entity)
        for gate in run.of("gate")
        if place.get(str(gate.get("by")).split(".")[0], len(place)) < place.get(stage, -1)
        for entity in gate.get("takes_out") or (gate.get("entity"),)
    )


def _limits(load: Latencies, rows: Sequence[CheckRow]) -> list[CheckRow]:
    return [
        row for row in rows if row.metric == "ttft_ms" and row.load == load.load and row.stage == load.stage
    ]


def _name(run: RunEvidence) -> str:
    target = run.run.get("target")
    return str(target.get("name") if isinstance(target, dict) else "rack")


def _footer(run: RunEvidence) -> str:
    versions = run.run.get("versions")
    version = versions.get("pytest-rackgate", "") if isinstance(versions, dict) else ""
    return (
        f'<footer><div class="wrap"><p>Made from evidence/records.jsonl of rackgate {escape(version, 20)}, '
        f"SHA-256 <code>{run.digest}</code>.</p><p>This page is one file, makes no request and may be "
        "passed on as it is. It is a view: the evidence decides.</p></div></footer>"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _document(title: str, body: str) -> str:
    files = resources.files("rackgate_reports.page")
    style = files.joinpath("style.css").read_text(encoding="utf-8")
    script = files.joinpath("script.js").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{escape(title, 160)}</title><style>{style}</style></head><body>{SPRITE}{body}"
        f"<script>{script}</script></body></html>\n"
    )
