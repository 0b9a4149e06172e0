"""Tables: the five numbers of every stage, and every check that was asked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rackgate_reports.digest.checks import STATUSES
from rackgate_reports.digest.overview import FIVE_NUMBERS, counts_of
from rackgate_reports.evidence import number_of
from rackgate_reports.formatting import (
    amount,
    as_shown,
    count,
    escape,
    limit,
    margin,
    metric_name,
    plural,
    stage_name,
)
from rackgate_reports.page.badges import badge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from rackgate_reports.digest.checks import CheckRow
    from rackgate_reports.digest.overview import NumbersRow


MOST_ROWS = 5000
"""How many checks the table holds; the worst are kept."""

_TALL = 250
_SCROLLED = ' class="tall" tabindex="0" role="group" aria-label="Every check, scrolls"'
_COLUMNS = (
    ("Verdict", "verdict"),
    ("Check", "check"),
    ("Stage", "stage"),
    ("Value", "value"),
    ("Limit", "limit"),
    ("Margin", "margin"),
    ("Count", "count"),
    ("Source of the limit", "source"),
)


def definition_id(metric: str) -> str:
    """Return the anchor of a metric's definition."""
    return "def-" + "".join(letter if letter.isalnum() else "-" for letter in metric)[:60]


def five_numbers_table(rows: Sequence[NumbersRow]) -> str:
    """Return throughput, P99 TTFT, error rate, power and temperature of every stage and load."""
    if not rows:
        return '<p class="empty">No headline numbers: no stage that offers a load was measured.</p>'
    heads = "".join(f'<th scope="col" class="num">{title}</th>' for _, _, title in FIVE_NUMBERS)
    body = "".join(
        f'<tr><th scope="row">{escape(stage_name(row.stage))}<small>{escape(row.load, 60)}</small></th>'
        f"{''.join(_number_cell(row, metric) for metric, _, _ in FIVE_NUMBERS)}</tr>"
        for row in rows
    )
    return (
        '<div class="scroll"><table class="numbers"><thead><tr><th scope="col">Stage and load</th>'
        f"{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _number_cell(row: NumbersRow, metric: str) -> str:
    record = row.values.get(metric)
    title = next(title for name, _, title in FIVE_NUMBERS if name == metric)
    if record is None:
        return f'<td class="num" data-h="{title}"><span class="none">not measured</span></td>'
    value, unit = as_shown(metric, number_of(record.get("value")), str(record.get("unit") or ""))
    if value is None:
        why = escape(record.get("detail") or record.get("reason") or "no reason recorded", 120)
        return f'<td class="num" data-h="{title}"><span class="none">no value</span><small>{why}</small></td>'
    extra = _bounds(record, metric)
    if math.isinf(value):
        extra = "failed requests reach into this percentile"
    if metric == "output_token_throughput" and "request_throughput" in row.values:
        requests = number_of(row.values["request_throughput"].get("value"))
        if requests is not None:
            extra = f"{amount(requests, 'req/s')} · {amount(requests * 60, 'req/min')}"
    note = f"<small>{extra}</small>" if extra else ""
    return f'<td class="num" data-h="{title}"><b>{escape(amount(value, unit))}</b>{note}</td>'


def _bounds(record: Mapping[str, Any], metric: str) -> str:
    bounds = record.get("bounds")
    if not isinstance(bounds, dict):
        return ""
    unit = str(record.get("unit") or "")
    return _interval(metric, number_of(bounds.get("lower")), number_of(bounds.get("upper")), unit)


def _interval(metric: str, lower: float | None, upper: float | None, unit: str) -> str:
    if lower is None and upper is None:
        return ""
    low, _ = as_shown(metric, lower, unit)
    high, shown_unit = as_shown(metric, upper, unit)
    return escape(f"{amount(low)} to {amount(high, shown_unit)}")


def checks_table(rows: Sequence[CheckRow]) -> str:
    """Return a table of every check, worst first where there are more than MOST_ROWS."""
    if not rows:
        return '<p class="empty">The run asked for no checks.</p>'
    shown = list(rows)
    note = ""
    if len(rows) > MOST_ROWS:
        keep = sorted(range(len(rows)), key=lambda index: -_badness(rows[index]))[:MOST_ROWS]
        shown = [rows[index] for index in sorted(keep)]
        left = ", ".join(
            f"{number:,} {STATUSES.get(name, name)}" for name, number in _left_out(rows, shown).items()
        )
        note = (
            f'<p class="note">The worst {MOST_ROWS:,} of {len(rows):,} checks are shown; left out here '
            f"({left}) but in evidence/records.jsonl.</p>"
        )
    heads = "".join(f'<th scope="col" data-k="{key}">{title}</th>' for title, key in _COLUMNS)
    tall = len(shown) > _TALL
    table = f'<table class="checks{" in-tall" if tall else ""}" id="checks-table">'
    return (
        f"{_controls(shown)}{note}"
        f"<div{_SCROLLED if tall else ''}>{table}<caption class=sr>Every check that was asked</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(map(_row, shown))}</tbody></table></div>"
        '<p class="empty" id="none-left" hidden>No check matches these filters.</p>'
    )


def _badness(row: CheckRow) -> int:
    return row.verdict.badness * 2 + (row.status == "") if row.decides else 0


def _left_out(rows: Sequence[CheckRow], shown: Sequence[CheckRow]) -> dict[str, int]:
    all_counts, kept = counts_of(rows), counts_of(shown)
    return {
        name: number - kept.get(name, 0) for name, number in all_counts.items() if number > kept.get(name, 0)
    }


def _controls(rows: Sequence[CheckRow]) -> str:
    chips = "".join(
        f'<button type="button" class="chip" aria-pressed="false" data-tone="{name}">'
        f"{badge(name if name not in STATUSES else '', name if name in STATUSES else '')}"
        f"<span>{number:,}</span></button>"
        for name, number in counts_of(rows).items()
    )
    options = "".join(
        f'<option value="{escape(stage, 60)}">{escape(stage_name(stage))}</option>'
        for stage in dict.fromkeys(row.stage for row in rows)
    )
    return (
        f'<div class="controls" hidden><div class="chips" role="group" aria-label="Filter by verdict">'
        f"{chips}</div>"
        f'<label>Stage <select id="by-stage"><option value="">all stages</option>{options}</select></label>'
        '<label class="grow">Find <input id="by-text" type="search" placeholder="check or entity"></label>'
        f'<output id="shown-count" aria-live="polite">{plural(len(rows), "check")}</output></div>'
    )


def _row(row: CheckRow) -> str:
    value, unit = as_shown(row.metric, row.value, row.unit)
    bound, _ = as_shown(row.metric, row.bound, row.unit)
    tone = row.status or str(row.verdict)
    sort_value = f' data-v="{value:g}"' if value is not None else ""
    sort_margin = f' data-v="{row.margin:g}"' if row.margin is not None else ""
    name = escape(metric_name(row.metric, row.statistic), 100)
    metric = f'<a href="#{definition_id(row.metric)}">{name}</a>' if row.definition else name
    severity = " <em>warn only</em>" if row.severity == "warn" else ""
    shown = amount(value, unit, beside=bound)
    return (
        f'<tr data-t="{tone}" data-s="{escape(row.stage, 60)}"><td>{badge(str(row.verdict), row.status)}</td>'
        f"<th scope=row><code>{escape(row.slo or row.check, 120)}</code>{severity}"
        f"<small>{escape(row.entity, 120)} · {metric}{_why(row)}</small></th>"
        f"<td>{escape(stage_name(row.stage))}</td>"
        f"<td class=num{sort_value}>{escape(shown)}<small>{_confidence(row)}</small></td>"
        f"<td class=num>{escape(limit(row.op, bound, unit))}</td>"
        f"<td class=num{sort_margin}>{margin(row.margin)}</td><td class=num>{count(row.count)}</td>"
        f"<td>{escape(row.source, 120)}</td></tr>"
    )


def _confidence(row: CheckRow) -> str:
    text = _interval(row.metric, row.lower, row.upper, row.unit)
    return f"{amount((row.confidence or 0) * 100, '%')}: {text}" if text else ""


def _why(row: CheckRow) -> str:
    if row.status == "gated":
        return f" · gated by {escape(row.gated_by or 'an earlier check', 160)}"
    words = ": ".join(part for part in (row.reason.replace("_", " "), row.words) if part)
    shown = ("" if row.verdict == "PASS" else words, *row.warnings)
    words = "; ".join(part for part in shown if part)
    return f" · {escape(words, 240)}" if words else ""
