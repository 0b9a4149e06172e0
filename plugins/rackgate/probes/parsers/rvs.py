"""The `-j` file of the ROCm Validation Suite: results of each action by card."""

from __future__ import annotations

from collections import defaultdict

from rackgate.probes.probe import BadOutput, ProbedNode, Value
from rackgate.probes.strict_json import field, one_object


def values(text: str, node: ProbedNode) -> list[Value]:
    """Return `not_passed` of each card: the number of its results whose `pass` is not true."""
    found = one_object(text)
    modules = {name: body for name, body in found.items() if name != "version"}
    if str(found.get("version", "1.0")) != "1.0" or not modules:
        raise BadOutput(f"of no known shape: version {found.get('version')}, modules {', '.join(modules)}")
    ran: set[str] = set()
    good: dict[int, int] = defaultdict(int)
    bad: dict[int, list[str]] = defaultdict(list)
    for module, actions in modules.items():
        for action, results in actions.items():
            for one in (one for one in results if "pass" in one):
                ran.add(action)
                card = int(field(one, "gpu_index"))
                if str(one["pass"]).lower() == "true":
                    good[card] += 1
                else:
                    bad[card].append(f"{module} {action}")
    lacking = [action for action in node.expects if action not in ran]
    if lacking or not ran:
        raise BadOutput(f"no result of {', '.join(lacking) or 'any action'} says whether it passed")
    cards = sorted({*good, *bad})
    node.same_cards(len(cards), "rvs")
    return [
        Value(
            name="not_passed",
            entity=f"gpu{card}",
            value=float(len(bad[card])),
            count=good[card] + len(bad[card]),
            detail="; ".join(bad[card])[:300],
        )
        for card in cards
    ]
