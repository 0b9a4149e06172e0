"""Sections of the HTML report: verdict, stages, quarantine, definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rackgate_reports.digest.checks import STATUSES
from rackgate_reports.digest.overview import GRADES, Headline, StageSummary, counts_of
from rackgate_reports.evidence import RunEvidence, number_of
from rackgate_reports.formatting import (
    duration,
    escape,
    metric_name,
    plural,
    stage_name,
)
from rackgate_reports.page.badges import badge, counts_bar, counts_text, icon
from rackgate_reports.page.tables import definition_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rackgate_reports.digest.checks import CheckRow


def hero(run: RunEvidence, headline: Headline, rows: Sequence[CheckRow]) -> str:
    """Return what must be read first: grade, verdict, scope, warnings, counts."""
    grade = run.grade
    word, worth = GRADES.get(grade, ("UNKNOWN GRADE", "The run did not record what its evidence is worth."))
    tone = "pass" if headline.accepted else "unknown" if headline.word == "INTERRUPTED" else "fail"
    warnings = "".join(
        f"<li>{icon('WARN')}<span>{escape(text, 300)}</span></li>" for text in headline.warnings[:8]
    )
    target = run.run.get("target")
    name = target.get("name") if isinstance(target, dict) else None
    shape = {"pass": "PASS", "fail": "FAIL", "unknown": "UNKNOWN"}[tone]
    counts = counts_of(rows)
    cells = "".join(
        f"<li>{badge(tone_, tone_ if tone_ in STATUSES else '')}<b>{number:,}</b></li>"
        for tone_, number in counts.items()
    )
    return (
        f'<div class="grade g-{grade if grade in GRADES else "none"}" role="note"><p><strong>{word}</strong> '
        f"<span>{worth}</span></p></div>"
        f'<header class="hero h-{tone}"><div class="wrap"><div><p class="eyebrow">Rack acceptance · '
        f"{escape(name or 'unnamed rack', 80)} · {escape(_day(run), 40)}</p>"
        f'<h1><svg class="i" aria-hidden="true"><use href="#i-{shape.lower()}"/></svg>'
        f"{escape(headline.word, 120)}</h1>"
        f'<p class="lede">{escape(_sentence(headline.text), 300)}</p>'
        f'<p class="scope"><b>Scope</b> {escape(headline.scope, 400)}</p>'
        + (f'<ul class="warnings">{warnings}</ul>' if warnings else "")
        + f'<ul class="counts">{cells}</ul></div>{_key_facts(run)}</div></header>'
    )


def _key_facts(run: RunEvidence) -> str:
    target = run.run.get("target")
    target = target if isinstance(target, dict) else {}
    nodes = [node for node in target.get("nodes") or () if isinstance(node, dict)]
    cards = sum(len(node.get("cards") or ()) for node in nodes)
    engines = len(target.get("engines") or ())
    size = plural(cards, "card") if cards else plural(engines, "engine") if engines else "no engine"
    facts = (
        ("Model", target.get("model")),
        ("Rack", f"{size} on {plural(len(nodes), 'node')}"),
        ("Profile", run.run.get("profile")),
        ("Duration", duration(number_of((run.end or {}).get("duration_s"))) if run.end else "no end"),
        ("Run", run.run.get("run_id")),
    )
    entries = "".join(
        f"<div><dt>{name}</dt><dd>{escape(value, 80)}</dd></div>" for name, value in facts if value
    )
    return f'<dl class="key">{entries}</dl>'


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _day(run: RunEvidence) -> str:
    at = str(run.run.get("at") or "")
    return f"{at[:10]} {at[11:16]} UTC" if len(at) >= 16 else "date not recorded"


def stages_section(stages: Sequence[StageSummary]) -> str:
    """Return the strip of stages: verdict, counts and duration of each."""
    cells: list[str] = []
    for index, stage in enumerate(stages):
        mark = (
            badge(str(stage.verdict))
            if stage.verdict is not None
            else f'<span class="badge t-none">{escape(stage.state)}</span>'
        )
        state = f" · {escape(stage.state)}" if stage.state and stage.verdict is not None else ""
        time = duration(stage.duration_s) if stage.duration_s is not None else ""
        cells.append(
            f'<li><div class="stage-head"><span class="stage-no">{index}</span>'
            f"<b>{escape(stage_name(stage.stage))}</b></div>"
            f'<div class="stage-mark">{mark}</div>{counts_bar(stage.counts)}'
            f"<small>{counts_text(stage.counts)}{state}</small><small>{time}</small></li>"
        )
    return f'<ol class="stages">{"".join(cells)}</ol>'


def quarantine_section(run: RunEvidence, rows: Sequence[CheckRow]) -> str:
    """Return who was quarantined or which stages were gated, by which check, and what that left out."""
    gates = run.of("gate")
    excluded = run.run.get("excluded") or ()
    items: list[str] = []
    for gate in gates[:80]:
        by = str(gate.get("by") or "")
        left_out = sum(row.status == "gated" and row.gated_by == by for row in rows)
        stages = ", ".join(stage_name(stage) for stage in gate.get("stages") or ())
        entity = escape(gate.get("entity") or "the whole rack", 120)
        what = f"<b>{entity}</b> {'quarantined' if gate.get('entity') else 'gated'}"
        verdict = badge(str(gate.get("verdict") or "UNKNOWN"))
        parts = [f"{plural(left_out, 'check')} gated"] if left_out else []
        parts += [f"keeps it out of: {stages}"] if stages else []
        items.append(
            f"<li>{verdict}<div><p>{what} by <code>{escape(by, 160)}</code></p>"
            f"<p>{escape(gate.get('text'), 400)}</p>"
            f"<small>{escape(' · '.join(parts), 400)}</small></div></li>"
        )
    items += [
        f'<li><span class="badge">excluded</span><div><p><b>{escape(entity, 120)}</b> left out on request</p>'
        "</div></li>"
        for entity in list(excluded)[:80]
    ]
    if not items:
        return ""
    return (
        '<section id="quarantine"><h2>Quarantine</h2><p class="intro">One bad card does not end the run: it '
        "leaves load, pairs and faults, and the rest goes on.</p>"
        f'<ul class="gates">{"".join(items)}</ul></section>'
    )


def glossary_section(run: RunEvidence, rows: Sequence[CheckRow]) -> str:
    """Return the definition of every metric that the report names."""
    known: dict[str, tuple[str, str]] = {}
    for row in rows:
        if row.definition:
            known.setdefault(row.metric, (row.definition, row.unit))
    for record in run.of("measurement"):
        if record.get("definition"):
            known.setdefault(
                str(record.get("metric")), (str(record["definition"]), str(record.get("unit") or ""))
            )
    entries = "".join(
        f'<div id="{definition_id(metric)}"><dt>{escape(metric_name(metric), 80)} '
        f"<code>{escape(metric, 80)}</code></dt>"
        f"<dd>{escape(text, 600)}{f' <small>Unit: {escape(unit, 30)}</small>' if unit else ''}</dd></div>"
        for metric, (text, unit) in sorted(known.items())[:400]
    )
    return (
        f'<dl class="glossary">{entries}</dl>'
        if entries
        else '<p class="empty">No definitions were recorded.</p>'
    )
