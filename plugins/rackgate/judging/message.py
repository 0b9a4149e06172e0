"""Texts for people: verdict messages, numbers with their units, the headline of a run."""

from __future__ import annotations

import math

from rackgate.diagnosis.chain import Chain
from rackgate.judging.ledger import Ledger
from rackgate.nouns.measurement import OPEN_WARNING, Measurement, Reason
from rackgate.nouns.slo import Check
from rackgate.nouns.verdict import Judgement

_BESIDE = 3
_ABOUT_THE_THING = (Reason.ABSENT, Reason.BLANK, Reason.UNSUPPORTED)
"""Reasons about the judged thing itself; the others are about the way to it."""


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


def verdict_message(check: Check, measurement: Measurement, judgement: Judgement, chain: Chain | None) -> str:
    """Return the text of a verdict; it begins with the word.

    A verdict other than PASS has a `chain`: the text has its layer, what was seen and the next step.
    """
    slo = check.slo
    lines = [f"{judgement.verdict} {check.id}: {_seen(measurement, judgement)}, agreed {slo.limit}"]
    statistic = "" if slo.statistic == "value" else f" {slo.statistic.upper()}"
    lines.append(
        f"  value   {slo.metric}{statistic} = {number(measurement.value, slo.unit)}{_interval(measurement)}"
    )
    lines.append(f"  samples n = {measurement.count}{f', load {slo.load}' if slo.load else ''}")
    lines.append(f"  limit   {slo.limit}; source: {slo.source}")
    detail = judgement.detail or measurement.detail
    if chain is not None:
        lines.append(f"  layer   {chain.layer}")
    if detail:
        lines.append(f"  seen    {detail}")
    if chain is not None and chain.leading is not None:
        lines.append(f"  cause   {chain.leading.meaning}")
    seen = [text for text in measurement.beside if not text.startswith(OPEN_WARNING)]
    lines += [f"  beside  {text}" for text in (*seen[:_BESIDE], *measurement.beside[len(seen) :])]
    if chain is not None:
        first, *others = chain.next_steps(hint_of(check, measurement, judgement))
        lines += [f"  next    {first}", *(f"  then    {step}" for step in others)]
    return "\n".join(lines)


def hint_of(check: Check, measurement: Measurement, judgement: Judgement) -> str:
    """Return the next step: the measurement's own hint, or the row's.

    A row's hint is about the judged thing. Where that was not seen at all, because of the instrument or
    the way to it, the cure of the reason is returned.
    """
    if measurement.hint or judgement.reason is None or judgement.reason in _ABOUT_THE_THING:
        return measurement.hint or check.slo.hint
    return judgement.reason.cure


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


def scope_text(ledger: Ledger) -> str:
    """Return what was tested of what is declared: `tested 3 of 4 cards on 2 nodes; excluded: node1/gpu1`."""
    tested = ledger.tested()
    silent = ledger.silent()
    reasons = {
        unit: "never answered" if unit in silent else "not reached"
        for unit in ledger.units
        if unit not in tested
    }
    reasons.update(ledger.left_out)
    declared = len(ledger.units) + len(ledger.left_out)
    nodes = {unit.split("/")[0] for unit in (*ledger.units, *ledger.left_out) if "/" in unit}
    where = f" on {len(nodes)} node{'s' * (len(nodes) != 1)}" if nodes else ""
    text = f"tested {len(tested)} of {declared} {_units(ledger, declared)}{where}"
    for reason in dict.fromkeys(reasons.values()):
        text += f"; {reason}: {_listed([unit for unit, why in reasons.items() if why == reason])}"
    return text


def _units(ledger: Ledger, count: int) -> str:
    target = ledger.target
    what = "card" if target.cards else "engine" if target.engines else "node"
    return f"{what}{'s' * (count != 1)}"


def _listed(units: list[str], most: int = 8) -> str:
    more = f" and {len(units) - most} more" if len(units) > most else ""
    return ", ".join(units[:most]) + more


def headline(ledger: Ledger, *, complete: bool, partial: bool, other_failures: int, not_checked: int) -> str:
    """Return the verdict of a run in one line.

    `other_failures` counts tests that failed and are no checks, `not_checked` tests that were marked
    as acceptance and were skipped or expected to fail.
    """
    counts = ledger.counts()
    if not complete:
        return "INTERRUPTED: not accepted, the run did not reach its end"
    if not ledger.judged and not other_failures:
        return "NOT ACCEPTED: nothing was checked"
    if not ledger.verdict.accepted or other_failures or not_checked:
        return f"NOT ACCEPTED: {_why_not(ledger, counts, other_failures, not_checked)}"
    total = sum(counts.values())
    begin = "ACCEPTED"
    if counts["not_assessed"] or counts["declared"]:
        begin = f"ACCEPTED WITHIN SCOPE {ledger.target.vantage}, {ledger.judged} of {total} rows"
    if partial:
        return f"PARTIAL RUN, nothing to certify: {ledger.judged} checks asked and met"
    return f"{begin}: {ledger.judged} checks met{_warned(counts['WARN'])}"


def _warned(count: int) -> str:
    return f", with {count} warning{'s' * (count != 1)}" if count else ""


def _why_not(ledger: Ledger, counts: dict[str, int], other_failures: int, not_checked: int) -> str:
    units, bad = ledger.units, ledger.unqualified()
    parts = ["no accelerator found on this machine"] if ledger.target.no_cards else []
    if ledger.judged:
        good = len(units) - len(bad)
        parts.append(f"{good} of {len(units)} {_units(ledger, len(units))} qualified")
        parts.append(f"{counts['FAIL']} FAIL, {counts['UNKNOWN']} UNKNOWN")
        if counts["gated"]:
            parts[-1] += f", {counts['gated']} gated"
    if other_failures:
        parts.append(f"{other_failures} other test{'s' * (other_failures != 1)} failed")
    if not_checked:
        parts.append(f"{not_checked} test{'s' * (not_checked != 1)} skipped or xfailed, so not checked")
    return "; ".join(parts)
