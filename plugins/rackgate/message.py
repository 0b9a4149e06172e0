"""What a person reads: verdict messages, numbers with their units, the headline of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackgate.judge import Judgement
    from rackgate.ledger import Ledger
    from rackgate.measurement import Measurement
    from rackgate.slo import Check

__all__ = ["gated_message", "headline", "number", "scope_text", "verdict_message"]


def number(value: float | None, unit: str = "") -> str:
    """Return a value with three to four significant digits and its unit; `none` without a value."""
    if value is None:
        return "no value"
    if math.isinf(value):
        text = "infinite" if value > 0 else "-infinite"
    elif value == round(value) and abs(value) < 1e6:
        text = f"{value:.0f}"
    else:
        text = f"{value:,.0f}".replace(",", " ") if abs(value) >= 1000 else f"{value:.3g}"
    return f"{text} {unit}".strip() if unit not in ("bool", "ratio") else text


def verdict_message(check: Check, measurement: Measurement, judgement: Judgement) -> str:
    """Return the text of a verdict; it begins with the word."""
    slo = check.slo
    lines = [f"{judgement.verdict} {check.id}: {_seen(measurement, judgement)}, agreed {slo.limit}"]
    statistic = "" if slo.statistic == "value" else f" {slo.statistic.upper()}"
    lines.append(
        f"  value   {slo.metric}{statistic} = {number(measurement.value, slo.unit)}{_interval(measurement)}"
    )
    lines.append(f"  samples n = {measurement.count}{f', load {slo.load}' if slo.load else ''}")
    lines.append(f"  limit   {slo.limit}; source: {slo.source}")
    detail = judgement.detail or measurement.detail
    if detail:
        lines.append(f"  seen    {detail}")
    if slo.hint and not judgement.verdict.accepted:
        lines.append(f"  next    {slo.hint}")
    return "\n".join(lines)


def gated_message(by: str) -> str:
    """Return the reason of an item that was not run because of another check."""
    return f"UNKNOWN: gated by {by}"


def _seen(measurement: Measurement, judgement: Judgement) -> str:
    if judgement.reason is not None:
        return f"{judgement.reason} ({judgement.detail})" if judgement.detail else str(judgement.reason)
    return number(measurement.value, measurement.unit)


def _interval(measurement: Measurement) -> str:
    bounds = measurement.bounds
    if bounds is None:
        return ""
    lower = "?" if bounds.lower is None else number(bounds.lower)
    upper = "?" if bounds.upper is None else number(bounds.upper)
    return f" (bounds {lower} .. {upper} {measurement.unit}, each one-sided at {bounds.confidence:.1%})"


def scope_text(ledger: Ledger, excluded: tuple[str, ...]) -> str:
    """Return what was tested of what is declared: `tested 3 of 4 cards on 2 nodes: node1/gpu1 excluded`."""
    target = ledger.target
    cards = [card.name for card in target.cards]
    what, units = ("cards", cards) if cards else ("engines", [engine.entity for engine in target.engines])
    left_out = [unit for unit in units if unit in excluded or unit.split("/")[0] in excluded]
    nodes = f" on {len(target.nodes)} nodes" if target.nodes else ""
    text = f"tested {len(units) - len(left_out)} of {len(units)} {what}{nodes}"
    return f"{text}: {', '.join(left_out)} excluded" if left_out else text


def headline(ledger: Ledger, *, complete: bool, partial: bool, failures: int) -> str:
    """Return the verdict of a run in one line."""
    counts = ledger.counts()
    if not complete:
        return "INTERRUPTED: not accepted, the run did not reach its end"
    if not ledger.judged:
        return "NOT ACCEPTED: nothing was checked"
    if not ledger.verdict.accepted or failures:
        return f"NOT ACCEPTED: {_why_not(ledger, counts, failures)}"
    total = sum(counts.values())
    begin = "ACCEPTED"
    if counts["not_assessed"]:
        begin = f"ACCEPTED WITHIN SCOPE {ledger.target.vantage}, {ledger.judged} of {total} rows"
    if partial:
        return f"PARTIAL RUN, nothing to certify: {ledger.judged} checks asked and met"
    return f"{begin}: {ledger.judged} checks met{', some with a warning' if counts['WARN'] else ''}"


def _why_not(ledger: Ledger, counts: dict[str, int], failures: int) -> str:
    units = [card.name for card in ledger.target.cards] or [engine.entity for engine in ledger.target.engines]
    what = "cards" if ledger.target.cards else "engines"
    bad = sum(1 for unit in units if unit in ledger.unqualified())
    parts = [f"{counts['FAIL']} FAIL", f"{counts['UNKNOWN']} UNKNOWN"]
    if counts["gated"]:
        parts.append(f"{counts['gated']} gated")
    site = failures - counts["FAIL"] - counts["UNKNOWN"]
    if site > 0:
        parts.append(f"{site} other tests failed")
    return f"{len(units) - bad} of {len(units)} {what} qualified; {', '.join(parts)}"
