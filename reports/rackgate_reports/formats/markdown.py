"""The Markdown summary for the job page of a CI system: below 60 KB whatever the run was."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from rackgate.nouns.verdict import Verdict
from rackgate_reports.digest.checks import CheckRow, check_rows, counts_of, counts_text
from rackgate_reports.digest.numbers import (
    ECONOMY,
    FIVE_NUMBERS,
    Cell,
    economy,
    economy_definitions,
    five_numbers,
)
from rackgate_reports.digest.overview import (
    StageSummary,
    endurance_of,
    grade_title_and_worth,
    headline_of,
    stages_of,
)
from rackgate_reports.digest.unmet import UnmetSlo, unmet_slos
from rackgate_reports.evidence import RunEvidence
from rackgate_reports.formatting import clip, duration, plural, stage_name

LIMIT_BYTES = 60_000
"""The most bytes of a summary."""

_BYTES_FOR_END = 4_000
_MOST_STAGES, _MOST_LOADS, _MOST_GATES, _MOST_ENTITIES = 24, 40, 30, 8
_MARKS = {Verdict.PASS: "✅", Verdict.WARN: "⚠️", Verdict.UNKNOWN: "❓", Verdict.FAIL: "❌"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]|#~!])")


def render_summary(run: RunEvidence) -> str:
    """Return the summary."""
    rows = check_rows(run)
    parts = [_head(run, rows), _stages(run, rows), _five_numbers(run), _economy(run), _quarantine(run)]
    room = LIMIT_BYTES - _BYTES_FOR_END - sum(len(part.encode()) for part in parts)
    return "\n".join(part for part in (*parts, _unmet(unmet_slos(run, rows), room), _reproduce(run)) if part)


def _safe(text: object, characters: int = 300) -> str:
    """Return text that Markdown shows as it is, on one line."""
    plain = clip(text, characters).replace("\N{NO-BREAK SPACE}", " ")
    escaped = _SPECIAL.sub(r"\\\1", html.escape(plain, quote=False))
    return escaped.replace("@", "&#64;")


def _code(text: object, characters: int = 160) -> str:
    """Return text as code, safe inside a table."""
    return "<code>" + html.escape(clip(text, characters), quote=False).replace("|", "&#124;") + "</code>"


def _table(heads: Sequence[str], alignment: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; `alignment` has a letter for each column: l or r."""
    rule = ["---:" if letter == "r" else "---" for letter in alignment]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"## {title}", "", *lines]) + "\n"


def _head(run: RunEvidence, rows: Sequence[CheckRow]) -> str:
    headline = headline_of(run, rows)
    title, worth = grade_title_and_worth(run)
    lines = [
        f"# {_MARKS[headline.verdict]} {_safe(headline.word, 120)}",
        "",
        f"**{_safe(headline.text or headline.word)}**",
        "",
        f"> **{title}.** {worth}",
        "",
        f"* Scope: {_safe(headline.scope)}",
        f"* Checks: {counts_text(counts_of(rows)) or 'none'}",
        f"* Profile: {_safe(run.run.get('profile') or 'not recorded', 40)}",
        f"* Run: {_code(run.run.get('run_id') or 'unnamed', 80)}",
        *(f"* ⚠️ {_safe(warning)}" for warning in headline.warnings[:8]),
    ]
    return "\n".join(lines) + "\n"


def _stages(run: RunEvidence, rows: Sequence[CheckRow]) -> str:
    cells = [
        (
            _safe(stage_name(stage.stage), 60),
            _stage_verdict(stage),
            counts_text(stage.counts),
            duration(stage.duration_s),
        )
        for stage in stages_of(run, rows)[:_MOST_STAGES]
    ]
    return _section("Stages", _table(("Stage", "Verdict", "Checks", "Duration"), "lllr", cells))


def _stage_verdict(stage: StageSummary) -> str:
    if stage.verdict is None:
        return stage.state
    return f"{_MARKS[stage.verdict]} {stage.verdict}{f' ({stage.state})' if stage.state else ''}"


def _five_numbers(run: RunEvidence) -> str:
    rows = [
        (f"{_safe(row.name, 60)}, {_safe(row.detail, 60)}", *map(_headline_cell, row.cells))
        for row in five_numbers(run)[:_MOST_LOADS]
    ]
    heads = ("Stage, load", *FIVE_NUMBERS.values())
    return _section("Five numbers", _table(heads, "lrrrrr", rows)) if rows else ""


def _headline_cell(cell: Cell) -> str:
    return _safe(cell.text, 40) if cell.known or not cell.note else f"no value ({_safe(cell.reason, 40)})"


def _economy(run: RunEvidence) -> str:
    """Return energy and cost by load and by class of work, with definitions, then what the soak proves."""
    rows = [
        (_safe(row.name, 120), _safe(row.detail, 40), *map(_economy_cell, row.cells))
        for row in economy(run)[:_MOST_LOADS]
    ]
    table = _table(("Load", "Class", *ECONOMY.values()), "llrrrrr", rows)
    definitions = [f"* {_code(name)}: {_safe(text)}" for name, text in economy_definitions(run).items()]
    endurance = endurance_of(run)
    proven = f"{_safe(endurance, 300)}\n" if endurance else ""
    parts = (_section("Energy and cost", [*table, "", *definitions]) if rows else "", proven)
    return "\n".join(filter(None, parts))


def _economy_cell(cell: Cell) -> str:
    return _safe(f"{cell.text} ({cell.note})" if cell.note else cell.text, 100)


def _quarantine(run: RunEvidence) -> str:
    gates = run.of("gate")
    lines = [
        f"* {_code(gate.get('entity') or 'whole rack')} by {_code(gate.get('by'))}: "
        f"{_safe(gate.get('text'), 200)}"
        for gate in gates[:_MOST_GATES]
    ]
    rest = len(gates) - _MOST_GATES
    more = [f"* and {rest:,} more"] if rest > 0 else []
    return _section("Quarantine", [*lines, *more]) if gates else ""


def _unmet(unmet: Sequence[UnmetSlo], room_bytes: int) -> str:
    if not unmet:
        return ""
    text = "## What failed and what to do\n\n"
    for index, slo in enumerate(unmet):
        entry = _unmet_slo(slo)
        if len((text + entry).encode()) > room_bytes:
            return f"{text}* and {plural(len(unmet) - index, 'more row')}: see report.html\n"
        text += entry
    return text


def _unmet_slo(slo: UnmetSlo) -> str:
    first, where = slo.rows[0], _safe(stage_name(slo.stage), 60)
    must = _safe(f"{first.metric_text} must be {first.limit_text}", 160)
    rest = len(slo.rows) - _MOST_ENTITIES
    lines = [
        f"* **{_MARKS[slo.verdict]} {slo.verdict}** {_code(slo.slo)} ({where}): {must}",
        *(f"  * {_seen(row)}" for row in slo.rows[:_MOST_ENTITIES]),
        *([f"  * and {rest:,} more entities"] if rest > 0 else []),
        *(f"  * Probe: {_safe(line, 300)}" for line in slo.probe_lines[:3]),
        *_chain(slo),
        f"  * Next: {_safe(' '.join(slo.next_steps), 400)}",
        f"  * {_code(slo.command, 300)}",
    ]
    return "\n".join(lines) + "\n"


def _chain(slo: UnmetSlo) -> list[str]:
    """Return the layers, the outermost first, each with what is known of it, and what else was seen."""
    lines = [f"  * Beside: {_safe(text, 200)}" for text in slo.beside[:3]]
    if not slo.chain:
        return lines
    if not slo.known:
        return [f"  * Layer: {', '.join(slo.causing_layers)}", *lines]
    links = []
    for link in slo.chain:
        seen = f" ({_safe(link.seen[0], 160)})" if link.seen and link.name else ""
        links.append(f"**{link.layer}**: {_safe(link.meaning, 160)}{seen}")
    return [f"  * Chain: {' → '.join(links)}", *lines]


def _seen(row: CheckRow) -> str:
    if row.value is None:
        return f"{_code(row.entity, 80)}: no value, {_safe(row.reason_and_seen or 'no reason recorded', 200)}"
    count = f", n = {row.count:,}" if row.count else ""
    seen = f"; {_safe(row.seen, 160)}" if row.seen else ""
    return f"{_code(row.entity, 80)}: {_safe(row.value_text, 40)}{count}{seen}"


def _reproduce(run: RunEvidence) -> str:
    command = html.escape(clip(run.run.get("command_line") or "not recorded", 1200), quote=False)
    return (
        f"## How to reproduce\n\n<pre><code>{command}</code></pre>\n\n"
        f"Seed {_safe(run.run.get('seed'), 40)}. Records: SHA-256 {_code(run.digest)}. "
        "Render again, with no rack: <code>rackgate report RUN</code>.\n"
    )
