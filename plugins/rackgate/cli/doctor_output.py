"""Output of `rackgate doctor`, as text and as JSON."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rackgate.doctor.forecast import Forecast, Outlook
from rackgate.doctor.snapshot import Snapshot
from rackgate.doctor.summary import ForecastGroup, grouped, ranked_cures
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.facts.node_differences import outliers, splits
from rackgate.nouns.target import Target
from rackgate.preflight.nodes import compared_nodes

_OUTLOOK_TEXT = {
    Outlook.RUN: "will run",
    Outlook.WARN: "will WARN as it stands",
    Outlook.FAIL: "will FAIL as it stands",
    Outlook.UNKNOWN: "will be UNKNOWN",
    Outlook.ABSENT: "declared absent",
    Outlook.UNSEEN: "not assessed from here",
}
_SHOWN, _MOST_CURES, _WIDTH = 4, 12, 110
_INDENT = " " * 11


def as_json(forecasts: Sequence[Forecast], snapshot: Snapshot, profile: str) -> dict[str, Any]:
    """Return the forecast of each check, the cures, the differences between nodes and the counts."""
    return {
        "target": snapshot.target.name,
        "profile": profile,
        "took_s": round(snapshot.took_s, 3),
        "summary": {_OUTLOOK_TEXT[outlook]: count for outlook, count in _counts(forecasts).items()},
        "checks": [
            {
                "id": one.check.id,
                "row": one.check.slo.id,
                "stage": one.check.slo.stage,
                "entity": one.check.entity,
                "outlook": str(one.outlook),
                "because": one.because,
                "needed": one.needed,
                "cure": one.cure,
            }
            for one in forecasts
        ],
        "cures": [asdict(cure) for cure in ranked_cures(forecasts)],
        "outliers": [asdict(one) for one in outliers(_compared(snapshot))],
        "splits": [asdict(one) for one in splits(_compared(snapshot))],
    }


def as_text(forecasts: Sequence[Forecast], snapshot: Snapshot, profile: str) -> str:
    """Return the forecasts stage by stage, then the cures, the differences between nodes and the counts."""
    lines = [f"{_about(snapshot.target)}; profile {profile}; looked at in {snapshot.took_s:.1f} s"]
    stage = ""
    for group in grouped(forecasts):
        if group.stage != stage:
            stage = group.stage
            lines += ["", stage]
        lines += _group_lines(group)
    lines += _cures(forecasts) + _node_differences(snapshot)
    rows = len({one.check.slo.id for one in forecasts})
    parts = [f"{count} {_OUTLOOK_TEXT[outlook]}" for outlook, count in _counts(forecasts).items()]
    lines += ["", f"{_number(len(forecasts), 'check')} in {_number(rows, 'row')}: {', '.join(parts)}"]
    return "\n".join(lines) + "\n"


def _about(target: Target) -> str:
    parts = [
        _number(len(target.cards), "card"),
        _number(len(target.nodes), "node"),
        _number(len(target.engines), "engine"),
    ]
    return f"{target.name} ({target.source or 'declared'}): {', '.join(parts)}"


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _group_lines(group: ForecastGroup) -> list[str]:
    word = {Outlook.RUN: "run", Outlook.UNSEEN: "unseen"}.get(group.outlook, str(group.outlook))
    begin = f"  {word:<8} "
    names = ", ".join(row.removeprefix(f"{group.stage}.") for row in group.rows)
    if group.outlook is Outlook.RUN:
        return _wrapped(begin, f"{_entities(group)}: {names}")
    because = " ".join(group.because.split())
    if group.outlook not in (Outlook.ABSENT, Outlook.UNSEEN):
        because = f"{_entities(group)}: {because}"
    return [*_wrapped(begin, because), *_wrapped(_INDENT, names)]


def _wrapped(begin: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=begin, subsequent_indent=_INDENT, break_on_hyphens=False
    )


def _entities(group: ForecastGroup) -> str:
    count = len(group.entities)
    return f"all {_number(count, group.scope)}" if group.whole and count > 1 else _first(group.entities)


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _cures(forecasts: Sequence[Forecast]) -> list[str]:
    cures = ranked_cures(forecasts)
    if not cures:
        return []
    lines = ["", "what would cure it, what helps most first"]
    for cure in cures[:_MOST_CURES]:
        lines += _wrapped(f"  {_number(cure.checks, 'check'):<8} ", cure.text)
        lines += _wrapped(_INDENT, f"for {_first(cure.rows)} @ {_first(cure.entities)}")
    left = len(cures) - _MOST_CURES
    return lines + ([f"  and {left} more: --json has all of them"] if left > 0 else [])


def _node_differences(snapshot: Snapshot) -> list[str]:
    """Return a table of the nodes that differ from most, by fact, then the facts without a majority."""
    compared = _compared(snapshot)
    found, undecided = outliers(compared), splits(compared)
    answered = [facts for facts in snapshot.facts.values() if any(fact.value for fact in facts.values())]
    if len(answered) < 2:
        return []
    if not found and not undecided:
        return ["", f"the {len(answered)} hosts that answered agree in every fact compared"]
    lines = ["", f"  {'fact':<24} {'most nodes':<36} {'differs'}"]
    for name in dict.fromkeys(outlier.fact for outlier in found):
        of_fact = [outlier for outlier in found if outlier.fact == name]
        usual = f"{of_fact[0].others} ({of_fact[0].share})"
        apart = "; ".join(f"{outlier.node}: {outlier.value}" for outlier in of_fact[:_SHOWN])
        lines.append(f"  {name:<24} {usual[:36]:<36} {apart}")
    for split in undecided:
        apart = "; ".join(f"{' '.join(nodes)}: {value}" for value, nodes in split.values.items())
        lines.append(f"  {split.fact:<24} {'no majority':<36} {apart}")
    return lines


def _compared(snapshot: Snapshot) -> dict[str, dict[str, Fact]]:
    return compared_nodes(snapshot.target, snapshot.facts, snapshot.firmware)


def _counts(forecasts: Sequence[Forecast]) -> dict[Outlook, int]:
    counted = Counter(one.outlook for one in forecasts)
    return {outlook: counted[outlook] for outlook in Outlook if counted[outlook]}
