"""The chain of a trouble, from the outside in: what is known of each layer, and what happened meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rackgate.nouns.measurement import Layer
from rackgate_reports.formatting import escape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rackgate_reports.digest.checks import CheckRow
    from rackgate_reports.digest.overview import Trouble


LAYERS = tuple(str(layer) for layer in Layer)
"""The layers of a rack, the outermost first."""

_MOST_SEEN = 3
_MOST_BESIDE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What is known of one layer; without a `name` it is what the row itself saw."""

    layer: str
    name: str
    meaning: str
    seen: tuple[str, ...]
    next_steps: tuple[str, ...]


def links_of(trouble: Trouble) -> tuple[Link, ...]:
    """Return the links of all of a trouble's rows, the outermost first; what several rows share once."""
    found: dict[tuple[str, str], Link] = {}
    for row in trouble.rows:
        for told in row.diagnosis:
            link = _link(told, row, several=len(trouble.rows) > 1)
            before = found.get((link.layer, link.name))
            seen = dict.fromkeys((*before.seen, *link.seen) if before else link.seen)
            found[link.layer, link.name] = Link(
                layer=link.layer,
                name=link.name,
                meaning=link.meaning,
                seen=tuple(seen),
                next_steps=link.next_steps,
            )
    return tuple(sorted(found.values(), key=lambda link: LAYERS.index(link.layer)))


def _link(told: Mapping[str, Any], row: CheckRow, *, several: bool) -> Link:
    seen, layer, steps = str(told.get("seen") or ""), str(told.get("layer")), told.get("next_steps")
    return Link(
        layer=layer if layer in LAYERS else str(Layer.SERVICE),
        name=str(told.get("name") or ""),
        meaning=str(told.get("meaning") or ""),
        seen=(f"{row.entity}: {seen}" if several else seen,) if seen else (),
        next_steps=tuple(map(str, steps)) if isinstance(steps, list | tuple) else (),
    )


def first_step(row: CheckRow) -> str:
    """Return the first step of the known failure behind a row; empty if none is known."""
    leading = [one for one in row.diagnosis if one.get("name") and one.get("name") == row.cause]
    steps = leading[0].get("next_steps") if leading else None
    return str(steps[0]) if isinstance(steps, list | tuple) and steps else ""


def beside_of(trouble: Trouble) -> tuple[str, ...]:
    """Return what was seen in the same seconds, each thing once, in the order of overlap."""
    return tuple(dict.fromkeys(text for row in trouble.rows for text in row.beside))


def chain_block(trouble: Trouble) -> str:
    """Return the layers with what is known of each, and what was seen at the same time."""
    links, beside = links_of(trouble), beside_of(trouble)
    if not links:
        return ""
    known = any(link.name for link in links)
    listed = "".join(_item(link) for link in links) if known else ""
    ladder = f'<ol class="links">{listed}</ol>' if listed else ""
    return f'<div class="chain">{_crumbs(links, trouble.rows)}{ladder}{_beside(beside)}</div>'


def _crumbs(links: Sequence[Link], rows: Sequence[CheckRow]) -> str:
    """Return all layers in one line; those with a link stand out, and the one behind the others most."""
    touched, leading = {link.layer for link in links}, {row.layer for row in rows}
    items = "".join(
        f'<li class="{"lead" if layer in leading else "on" if layer in touched else "off"}">{layer}</li>'
        for layer in LAYERS
    )
    where = ", ".join(layer for layer in LAYERS if layer in leading)
    return f'<h4 class="sr">Layer: {escape(where, 100)}</h4><ol class="crumbs">{items}</ol>'


def _item(link: Link) -> str:
    seen = "; ".join(link.seen[:_MOST_SEEN])
    rest = len(link.seen) - _MOST_SEEN
    more = f" and {rest} more" if rest > 0 else ""
    words = f"<small>Seen: {escape(seen, 400)}{more}</small>" if seen else ""
    steps = "".join(f"<li>{escape(step, 400)}</li>" for step in link.next_steps) if link.name else ""
    todo = f"<ol>{steps}</ol>" if steps else ""
    return (
        f"<li><b>{link.layer}</b><div><p>{escape(_sentence(link.meaning), 400)}</p>{words}{todo}</div></li>"
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _beside(beside: Sequence[str]) -> str:
    if not beside:
        return ""
    items = "".join(
        f"<li>{escape(text.removeprefix('seen at the same time: '), 200)}</li>"
        for text in beside[:_MOST_BESIDE]
    )
    head = "Seen at the same time, most of it first: no proof of a cause"
    return f'<div class="beside"><h4>{head}</h4><ul>{items}</ul></div>'
