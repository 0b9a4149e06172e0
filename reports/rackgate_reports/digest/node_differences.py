"""What nodes say that should be the same on all: one row a fact, and which node says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rackgate_reports.formatting import escape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rackgate_reports.evidence import RunEvidence


_MOST_NODES = 12
_LONG = 120


def same_table(run: RunEvidence) -> str:
    """Return the table of the latest facts of each node, those that differ first; "" if none were read."""
    nodes = {str(one.get("node")): one.get("facts") or {} for one in run.of("facts")}
    names = list(dict.fromkeys(name for facts in nodes.values() for name in facts))
    rows = [_row(name, {node: facts.get(name) or {} for node, facts in nodes.items()}) for name in names]
    if not rows:
        return ""
    rows.sort(key=lambda row: row[0])
    body = "".join(text for _, text in rows)
    return (
        f"<h3>The same on all nodes</h3><p class='intro'>{len(nodes)} nodes told their facts; those in which "
        "they differ come first.</p><div class='table-wrap'><table><thead><tr><th scope='col'>Fact</th>"
        "<th scope='col'>Most nodes</th><th scope='col'>Others</th><th scope='col'>Not read</th></tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(name: str, said: Mapping[str, Mapping[str, object]]) -> tuple[int, str]:
    """Return (0 if nodes differ, 1 if some were not read, 2 if all agree) and the row."""
    by_value: dict[str, list[str]] = {}
    for node, fact in said.items():
        if fact.get("value") is not None:
            by_value.setdefault(str(fact["value"]), []).append(node)
    unread = [node for node, fact in said.items() if fact.get("value") is None]
    known = sorted(by_value.items(), key=lambda one: -len(one[1]))
    told = sum(len(nodes) for nodes in by_value.values())
    usual = known[0][0] if known and 2 * len(known[0][1]) > told else None
    others = [(value, nodes) for value, nodes in known if value != usual]
    rank = 0 if len(known) > 1 else 1 if unread and known else 2
    most = escape(usual, _LONG) if usual is not None else "no majority" if known else ""
    apart = "<br>".join(f"{escape(value, _LONG)} <small>{_names(nodes)}</small>" for value, nodes in others)
    cells = (f"<code>{escape(name, _LONG)}</code>", most, apart, _names(unread))
    return rank, f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _names(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _MOST_NODES} more" if len(nodes) > _MOST_NODES else ""
    return escape(", ".join(nodes[:_MOST_NODES]) + more, 600)
