"""What `rackgate doctor` prints."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rackgate.doctor.grouping import blocks, cures
from rackgate.doctor.prognosis import Outlook
from rackgate.hosts.facts.node_differences import outliers, splits
from rackgate.preflight.nodes import compared_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rackgate.doctor.examination import Examination
    from rackgate.doctor.grouping import Block
    from rackgate.doctor.prognosis import Prognosis
    from rackgate.hosts.facts.fact import Fact
    from rackgate.nouns.target import Target


_WORDS = {
    Outlook.RUN: "will run",
    Outlook.WARN: "will WARN as it stands",
    Outlook.FAIL: "will FAIL as it stands",
    Outlook.UNKNOWN: "will be UNKNOWN",
    Outlook.ABSENT: "declared absent",
    Outlook.UNSEEN: "not assessed from here",
}
_SHOWN, _MOST_CURES, _WIDTH = 4, 12, 110
_INDENT = " " * 11


def as_json(found: Sequence[Prognosis], seen: Examination, profile: str) -> dict[str, Any]:
    """Return everything for a program: each check, the cures, the nodes that differ, the counts."""
    return {
        "target": seen.target.name,
        "profile": profile,
        "took_s": round(seen.took_s, 3),
        "summary": {_WORDS[word]: count for word, count in _counts(found).items()},
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
            for one in found
        ],
        "cures": [asdict(cure) for cure in cures(found)],
        "outliers": [asdict(one) for one in outliers(_compared(seen))],
        "splits": [asdict(one) for one in splits(_compared(seen))],
    }


def as_text(found: Sequence[Prognosis], seen: Examination, profile: str) -> str:
    """Return everything for a person: stage by stage, then what to do, then the counts."""
    written = [f"{_about(seen.target)}; profile {profile}; looked at in {seen.took_s:.1f} s"]
    stage = ""
    for block in blocks(found):
        if block.stage != stage:
            stage = block.stage
            written += ["", stage]
        written += _shown(block)
    written += _cured(found) + _different(seen)
    rows = len({one.check.slo.id for one in found})
    parts = [f"{count} {_WORDS[word]}" for word, count in _counts(found).items()]
    written += ["", f"{_number(len(found), 'check')} in {_number(rows, 'row')}: {', '.join(parts)}"]
    return "\n".join(written) + "\n"


def _about(target: Target) -> str:
    parts = [
        _number(len(target.cards), "card"),
        _number(len(target.nodes), "node"),
        _number(len(target.engines), "engine"),
    ]
    return f"{target.name} ({target.source or 'declared'}): {', '.join(parts)}"


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _shown(block: Block) -> list[str]:
    word = {Outlook.RUN: "run", Outlook.UNSEEN: "unseen"}.get(block.outlook, str(block.outlook))
    names = ", ".join(row.removeprefix(f"{block.stage}.") for row in block.rows)
    if block.outlook is Outlook.RUN:
        return _wrapped(f"  {word:<8} ", f"{_entities(block)}: {names}")
    if block.outlook in (Outlook.ABSENT, Outlook.UNSEEN):
        return [*_wrapped(f"  {word:<8} ", block.because), *_wrapped(_INDENT, names)]
    return [
        *_wrapped(f"  {word:<8} ", f"{_entities(block)}: {' '.join(block.because.split())}"),
        *_wrapped(_INDENT, names),
    ]


def _wrapped(begin: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=begin, subsequent_indent=_INDENT, break_on_hyphens=False
    )


def _entities(block: Block) -> str:
    count = len(block.entities)
    if block.whole and count > 1:
        return f"all {_number(count, block.scope)}"
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    return ", ".join(block.entities[:_SHOWN]) + more


def _cured(found: Sequence[Prognosis]) -> list[str]:
    listed = cures(found)
    if not listed:
        return []
    written = ["", "what would cure it, what helps most first"]
    for cure in listed[:_MOST_CURES]:
        names = ", ".join(cure.rows[:_SHOWN]) + _further(cure.rows)
        where = ", ".join(cure.entities[:_SHOWN]) + _further(cure.entities)
        written += [*_wrapped(f"  {_number(cure.checks, 'check'):<8} ", cure.text)]
        written += _wrapped(_INDENT, f"for {names} @ {where}")
    left = len(listed) - _MOST_CURES
    return written + ([f"  and {left} more: --json has all of them"] if left > 0 else [])


def _further(rows: Sequence[str]) -> str:
    return f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""


def _different(seen: Examination) -> list[str]:
    """Return the table of nodes that differ from most, fact by fact; last the facts without a majority."""
    compared = _compared(seen)
    found, open_ = outliers(compared), splits(compared)
    answered = [facts for facts in seen.facts.values() if any(fact.value for fact in facts.values())]
    if len(answered) < 2:
        return []
    if not found and not open_:
        return ["", f"the {len(answered)} hosts that answered agree in every fact compared"]
    written = ["", f"  {'fact':<24} {'most nodes':<36} {'differs'}"]
    for name in dict.fromkeys(one.fact for one in found):
        mine = [one for one in found if one.fact == name]
        usual = f"{mine[0].others} ({mine[0].share})"
        apart = "; ".join(f"{one.node}: {one.value}" for one in mine[:_SHOWN])
        written.append(f"  {name:<24} {usual[:36]:<36} {apart}")
    for one in open_:
        apart = "; ".join(f"{' '.join(nodes)}: {value}" for value, nodes in one.values.items())
        written.append(f"  {one.fact:<24} {'no majority':<36} {apart}")
    return written


def _compared(seen: Examination) -> dict[str, dict[str, Fact]]:
    return compared_nodes(seen.target, seen.facts, seen.firmware)


def _counts(found: Sequence[Prognosis]) -> dict[Outlook, int]:
    counted = Counter(one.outlook for one in found)
    return {word: counted[word] for word in Outlook if counted[word]}
