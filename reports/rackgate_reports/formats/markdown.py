"""The Markdown summary for the job page of a CI system: below 60 KB whatever the run was."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from rackgate_reports.digest.advice import next_step
from rackgate_reports.digest.chain import LAYERS, beside_of, links_of
from rackgate_reports.digest.checks import STATUSES, check_rows
from rackgate_reports.digest.economy import COLUMNS, currency_of, economy_of, said_of
from rackgate_reports.digest.overview import (
    FIVE_NUMBERS,
    GRADES,
    counts_of,
    endurance_of,
    headline_of,
    numbers_of,
    stages_of,
    troubles_of,
)
from rackgate_reports.digest.probes import asked_lines
from rackgate_reports.evidence import number_of
from rackgate_reports.formatting import (
    amount,
    as_shown,
    clip,
    duration,
    limit,
    metric_name,
    plural,
    stage_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rackgate_reports.digest.checks import CheckRow
    from rackgate_reports.digest.economy import EconomyRow
    from rackgate_reports.digest.overview import Headline, NumbersRow, StageSummary, Trouble
    from rackgate_reports.evidence import RunEvidence


LIMIT_BYTES = 60_000
"""The most bytes of a summary."""

_MARKS = {"PASS": "✅", "WARN": "⚠️", "UNKNOWN": "❓", "FAIL": "❌"}
_ROOM_FOR_END = 4_000
_SPECIAL = re.compile(r"([\\`*_{}\[\]|#~!])")


def render_summary(run: RunEvidence) -> str:
    """Return the summary."""
    rows = check_rows(run)
    headline = headline_of(run, rows)
    troubles = troubles_of(rows)
    parts = [
        _head(run, headline, rows),
        _stages(stages_of(run, rows)),
        _numbers(numbers_of(run)),
        _economy(run),
        _proven(run),
        _quarantine(run),
    ]
    room = LIMIT_BYTES - _ROOM_FOR_END - sum(len(part.encode()) for part in parts)
    return "\n".join(part for part in (*parts, _troubles(run, troubles, room), _reproduce(run)) if part)


def _safe(text: object, characters: int = 300) -> str:
    """Return text that Markdown shows as it is, on one line."""
    escaped = _SPECIAL.sub(r"\\\1", html.escape(clip(text, characters), quote=False))
    return escaped.replace("@", "&#64;")


def _code(text: object, characters: int = 160) -> str:
    """Return text as code, safe inside a table."""
    return "<code>" + html.escape(clip(text, characters), quote=False).replace("|", "&#124;") + "</code>"


def _mark(verdict: str) -> str:
    return f"{_MARKS.get(verdict, '')} {verdict}".strip()


def _head(run: RunEvidence, headline: Headline, rows: Sequence[CheckRow]) -> str:
    grade = run.grade
    word, worth = GRADES.get(grade, ("UNKNOWN GRADE", "The run did not record what its evidence is worth."))
    mark = "✅" if headline.accepted else "❓" if headline.word == "INTERRUPTED" else "❌"
    counts = ", ".join(f"{number:,} {STATUSES.get(name, name)}" for name, number in counts_of(rows).items())
    lines = [
        f"# {mark} {_safe(headline.word, 120)}",
        "",
        f"**{_safe(headline.text or headline.word)}**",
        "",
        f"> **{word}.** {worth}",
        "",
        f"* Scope: {_safe(headline.scope)}",
        f"* Checks: {counts or 'none'}",
        f"* Profile: {_safe(run.run.get('profile') or 'not recorded', 40)}",
        f"* Run: {_code(run.run.get('run_id') or 'unnamed', 80)}",
    ]
    lines += [f"* ⚠️ {_safe(warning)}" for warning in headline.warnings[:8]]
    return "\n".join(lines) + "\n"


def _stages(stages: Sequence[StageSummary]) -> str:
    lines = ["## Stages", "", "| Stage | Verdict | Checks | Duration |", "| --- | --- | --- | ---: |"]
    for stage in stages[:24]:
        verdict = _mark(str(stage.verdict)) if stage.verdict is not None else stage.state
        state = f" ({stage.state})" if stage.state and stage.verdict is not None else ""
        counts = ", ".join(f"{number:,} {STATUSES.get(name, name)}" for name, number in stage.counts.items())
        name = _safe(stage_name(stage.stage), 60)
        lines.append(f"| {name} | {verdict}{state} | {counts} | {duration(stage.duration_s)} |")
    return "\n".join(lines) + "\n"


def _numbers(rows: Sequence[NumbersRow]) -> str:
    if not rows:
        return ""
    titles = " | ".join(title for _, _, title in FIVE_NUMBERS)
    lines = ["## Five numbers", "", f"| Stage, load | {titles} |", "| --- |" + " ---: |" * len(FIVE_NUMBERS)]
    for row in rows[:40]:
        cells = " | ".join(_number(row, metric) for metric, _, _ in FIVE_NUMBERS)
        lines.append(f"| {_safe(stage_name(row.stage), 60)}, {_safe(row.load, 60)} | {cells} |")
    return "\n".join(lines) + "\n"


def _economy(run: RunEvidence) -> str:
    """Return energy and cost by load and by class of work, with the definitions of what has a value."""
    rows = economy_of(run)
    if not rows:
        return ""
    currency = currency_of(run)
    titles = " | ".join(title for _, title in COLUMNS)
    lines = [
        "## Energy and cost",
        "",
        f"| Load | Class | {titles} |",
        "| --- | --- |" + " ---: |" * len(COLUMNS),
    ]
    for row in rows[:40]:
        cells = " | ".join(_taken(row, metric, currency) for metric, _ in COLUMNS)
        lines.append(f"| {_safe(row.name, 120)} | {_safe(row.workload, 40)} | {cells} |")
    known = {
        name: record for row in rows for name, record in row.values.items() if record.get("value") is not None
    }
    lines += ["", *(f"* {_code(name)}: {_safe(record.get('definition'))}" for name, record in known.items())]
    return "\n".join(lines) + "\n"


def _taken(row: EconomyRow, metric: str, currency: str) -> str:
    said, rests_on = said_of(row, metric, currency)
    return _safe(f"{said} ({rests_on})" if rests_on else said, 100)


def _number(row: NumbersRow, metric: str) -> str:
    record = row.values.get(metric)
    if record is None:
        return "not measured"
    value, unit = as_shown(metric, number_of(record.get("value")), str(record.get("unit") or ""))
    return (
        f"no value ({_safe(record.get('reason'), 40)})" if value is None else _safe(amount(value, unit), 40)
    )


def _proven(run: RunEvidence) -> str:
    text = endurance_of(run)
    return f"{_safe(text, 300)}.\n" if text else ""


def _quarantine(run: RunEvidence) -> str:
    gates = run.of("gate")
    if not gates:
        return ""
    lines = [
        f"* {_code(gate.get('entity') or 'whole rack')} by {_code(gate.get('by'))}: "
        f"{_safe(gate.get('text'), 200)}"
        for gate in gates[:30]
    ]
    if len(gates) > 30:
        lines.append(f"* and {len(gates) - 30:,} more")
    return "\n".join(["## Quarantine", "", *lines]) + "\n"


def _troubles(run: RunEvidence, troubles: Sequence[Trouble], room_bytes: int) -> str:
    if not troubles:
        return ""
    text = "## What failed and what to do\n\n"
    for index, trouble in enumerate(troubles):
        entry = _trouble(run, trouble)
        if len((text + entry).encode()) > room_bytes:
            return f"{text}* and {plural(len(troubles) - index, 'more row')}: see report.html\n"
        text += entry
    return text


def _trouble(run: RunEvidence, trouble: Trouble) -> str:
    first = trouble.rows[0]
    bound, unit = as_shown(first.metric, first.bound, first.unit)
    words, command = next_step(run, trouble)
    must = f"{metric_name(first.metric, first.statistic)} must be {limit(first.op, bound, unit)}"
    where = _safe(stage_name(trouble.stage), 60)
    lines = [f"* **{_mark(str(trouble.verdict))}** {_code(trouble.slo)} ({where}): {_safe(must, 160)}"]
    lines += [f"  * {_seen(row)}" for row in trouble.rows[:8]]
    if len(trouble.rows) > 8:
        lines.append(f"  * and {len(trouble.rows) - 8:,} more entities")
    lines += [f"  * Probe: {_safe(line, 300)}" for line in asked_lines(run, trouble)[:3]]
    lines += [f"  * {line}" for line in _chain(trouble)]
    lines.append(f"  * Next: {_safe(' '.join(words), 400)}")
    lines.append(f"  * {_code(command, 300)}")
    return "\n".join(lines) + "\n"


def _chain(trouble: Trouble) -> list[str]:
    """Return the layers from the outside in, each with what is known of it, and what else was seen."""
    links, beside = links_of(trouble), beside_of(trouble)
    layers = {row.layer for row in trouble.rows}
    told = [
        f"**{link.layer}**: {_safe(link.meaning, 160)}"
        f"{f' ({_safe(link.seen[0], 160)})' if link.seen and link.name else ''}"
        for link in links
    ]
    where = f"Layer: {', '.join(layer for layer in LAYERS if layer in layers)}"
    head = [f"Chain: {' → '.join(told)}"] if any(link.name for link in links) else [where] if links else []
    return [*head, *(f"Beside: {_safe(text, 200)}" for text in beside[:3])]


def _seen(row: CheckRow) -> str:
    value, unit = as_shown(row.metric, row.value, row.unit)
    bound, _ = as_shown(row.metric, row.bound, row.unit)
    if value is None:
        why = ": ".join(part for part in (row.reason.replace("_", " "), row.words) if part)
        return f"{_code(row.entity, 80)}: no value, {_safe(why or 'no reason recorded', 200)}"
    count = f", n = {row.count:,}" if row.count else ""
    words = f"; {_safe(row.words, 160)}" if row.words else ""
    return f"{_code(row.entity, 80)}: {_safe(amount(value, unit, beside=bound), 40)}{count}{words}"


def _reproduce(run: RunEvidence) -> str:
    command = html.escape(clip(run.run.get("command_line") or "not recorded", 1200), quote=False)
    return (
        f"## How to reproduce\n\n<pre><code>{command}</code></pre>\n\n"
        f"Seed {_safe(run.run.get('seed'), 40)}. Records: SHA-256 {_code(run.digest)}. "
        "Render again, with no rack: <code>rackgate report RUN</code>.\n"
    )
