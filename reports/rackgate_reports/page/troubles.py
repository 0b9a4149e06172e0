"""What failed and what to do: each FAIL and UNKNOWN with its value, its bound and the next step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rackgate.nouns.verdict import worst
from rackgate_reports.charts.scales import Scale
from rackgate_reports.charts.svg import label, rect, rule
from rackgate_reports.digest.advice import next_step, repeat_command
from rackgate_reports.digest.chain import chain_block
from rackgate_reports.digest.probes import asked_lines
from rackgate_reports.formatting import (
    amount,
    as_shown,
    escape,
    limit,
    margin,
    metric_name,
    plural,
    stage_name,
)
from rackgate_reports.page.badges import badge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rackgate_reports.digest.checks import CheckRow
    from rackgate_reports.digest.overview import Headline, Trouble
    from rackgate_reports.evidence import RunEvidence


_MOST_TROUBLES = 40
_MOST_ENTITIES = 12
_MOST_NAMED = 6


def troubles_section(run: RunEvidence, troubles: Sequence[Trouble], headline: Headline) -> str:
    """Return each FAIL and UNKNOWN with what was seen, its bound, the hint and the next step."""
    if not troubles:
        if run.end is None:
            return (
                '<p class="calm">No check had failed when the run was interrupted. Run it again:</p>'
                f'<pre tabindex="0"><code>{escape(repeat_command(run), 600)}</code></pre>'
            )
        text = (
            "Nothing failed, and nothing that was asked is unknown."
            if headline.accepted
            else "No check failed by itself; see the warnings above for why the run is not accepted."
        )
        return f'<p class="calm">{text}</p>'
    cards = "".join(_trouble(run, trouble) for trouble in troubles[:_MOST_TROUBLES])
    rest = len(troubles) - _MOST_TROUBLES
    more = f'<p class="note">{plural(rest, "more row")} below in the table of checks.</p>' if rest > 0 else ""
    return f'{_by_entity(troubles)}<div class="troubles">{cards}</div>{more}'


def _by_entity(troubles: Sequence[Trouble]) -> str:
    """Return who has how many unmet rows, the most first; nothing where that says no more than the rows."""
    owners: dict[str, list[CheckRow]] = {}
    for trouble in troubles:
        for row in trouble.rows:
            owners.setdefault(row.entity, []).append(row)
    if len(owners) == sum(len(rows) for rows in owners.values()):
        return ""
    ranked = sorted(owners.items(), key=lambda owner: -len(owner[1]))
    items = []
    for entity, rows in ranked[:_MOST_ENTITIES]:
        names = list(dict.fromkeys(row.slo or row.check for row in rows))
        shown = ", ".join(f"<code>{escape(name, 80)}</code>" for name in names[:_MOST_NAMED])
        rest = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        verdict = worst(row.verdict for row in rows)
        items.append(
            f"<li>{badge(str(verdict))}<div><p><b>{escape(entity, 120)}</b> {plural(len(rows), 'row')} "
            f"not met</p><small>{shown}{rest}</small></div></li>"
        )
    rest_of = len(ranked) - _MOST_ENTITIES
    more = f"<li>and {rest_of:,} more</li>" if rest_of > 0 else ""
    return f'<ul class="gates culprits">{"".join(items)}{more}</ul>'


def _trouble(run: RunEvidence, trouble: Trouble) -> str:
    first = trouble.rows[0]
    bound, unit = as_shown(first.metric, first.bound, first.unit)
    words, command = next_step(run, trouble)
    seen = "".join(_seen(row) for row in trouble.rows[:_MOST_ENTITIES])
    rest = len(trouble.rows) - _MOST_ENTITIES
    more = f"<li>and {rest:,} more</li>" if rest > 0 else ""
    todo = "".join(f"<p>{escape(sentence, 600)}</p>" for sentence in words)
    return (
        f'<article class="trouble b-{trouble.verdict.lower()}"><header>{badge(str(trouble.verdict))}'
        f"<h3><code>{escape(trouble.slo, 120)}</code></h3><p>{escape(stage_name(trouble.stage))} · "
        f"{escape(metric_name(first.metric, first.statistic), 100)} must be "
        f"{escape(limit(first.op, bound, unit))}</p></header>"
        f'<div class="found"><ul class="seen">{seen}{more}</ul>{_asked(run, trouble)}{_source(trouble)}</div>'
        f'<div class="todo"><h4>What to do</h4>{todo}'
        f'<pre tabindex="0"><code>{escape(command, 600)}</code></pre></div>'
        f"{chain_block(trouble)}</article>"
    )


def _asked(run: RunEvidence, trouble: Trouble) -> str:
    return "".join(f'<p class="source">Probe: {escape(line, 500)}</p>' for line in asked_lines(run, trouble))


def _source(trouble: Trouble) -> str:
    first = trouble.rows[0]
    load = f" · load {escape(first.load, 60)}" if first.load else ""
    gated = f" · {plural(len(trouble.gated), 'check')} gated by this" if trouble.gated else ""
    return f'<p class="source">Limit from: {escape(first.source or "not recorded", 200)}{load}{gated}</p>'


def _seen(row: CheckRow) -> str:
    value, unit = as_shown(row.metric, row.value, row.unit)
    bound, _ = as_shown(row.metric, row.bound, row.unit)
    if value is None:
        why = ": ".join(part for part in (row.reason.replace("_", " "), row.words) if part)
        why = escape(why or "no reason recorded", 500)
        return f"<li><b>{escape(row.entity, 120)}</b> no value <span>{why}</span></li>"
    facts = [f"margin {margin(row.margin)}"] if row.margin is not None else []
    if row.lower is not None or row.upper is not None:
        low, _ = as_shown(row.metric, row.lower, row.unit)
        high, _ = as_shown(row.metric, row.upper, row.unit)
        facts.append(
            f"{amount((row.confidence or 0) * 100, '%')} bounds {amount(low)} to {amount(high, unit)}"
        )
    if row.count:
        facts.append(f"n = {row.count:,}")
    text = f"<span>{escape(row.words, 500)}</span>" if row.words else ""
    return (
        f"<li><b>{escape(row.entity, 120)}</b> {escape(amount(value, unit, beside=bound))} "
        f"<span>{escape(' · '.join(facts))}</span>{_whisker(row)}{text}</li>"
    )


def _whisker(row: CheckRow) -> str:
    """Draw the value with its confidence bounds against the limit, from zero."""
    known = [number for number in (row.value, row.lower, row.upper, row.bound) if number is not None]
    if row.value is None or not row.bound or any(not math.isfinite(number) or number < 0 for number in known):
        return ""
    x = Scale(low=0.0, high=max(known) * 1.08, start=2, stop=318)
    edge = x.place(row.bound)
    inside = (2.0, edge - 2) if row.op == "<=" else (edge, 318 - edge)
    parts = [rect((2, 10, 316, 8), "w-bad"), rect((inside[0], 10, inside[1], 8), "w-good")]
    low = row.lower if row.lower is not None else row.value
    high = row.upper if row.upper is not None else row.value
    if high > low:
        parts.append(rule(x.place(low), 14, x.place(high), 14, "w-range"))
    place = x.place(row.value)
    parts.append(f'<circle class="w-dot" cx="{place:.1f}" cy="14" r="4"/>')
    parts.append(rule(edge, 5, edge, 23, "limit"))
    anchor = "start" if edge < 60 else "end" if edge > 260 else "middle"
    parts.append(label(edge, 34, "limit", "tick", anchor))
    return f'<svg class="whisker" viewBox="0 0 320 38" aria-hidden="true">{"".join(parts)}</svg>'
