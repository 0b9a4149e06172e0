"""nccl-tests (also rccl-tests): the bus bandwidth at the largest size, and wrong elements at any size."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rackgate.nouns.measurement import Reason
from rackgate.probes.probe import BadOutput, ProbedNode, Value
from rackgate.probes.strict_json import field, number, one_object

_LEAST_BYTES = 16 << 30
_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+((?:\s+\S+){8})", re.MULTILINE)
_RANK = re.compile(r"^#\s+Rank\s+\d+ ", re.MULTILINE)


def values(text: str, node: ProbedNode) -> list[Value]:
    """Return `wrong`, and `busbw` at the largest size from 16 GiB on: the slower of both placements."""
    ranks, rows = _of_json(one_object(text)) if "{" in text else _of_table(text)
    cards = node.ranks or len(node.cards)
    if ranks < cards:
        raise BadOutput(f"{ranks} ranks, and the target declares {cards} cards: not all took part")
    if not rows:
        raise BadOutput("no line of results")
    wrong = [count for _, _, counts in rows for count in counts]
    size, speeds, _ = max(rows, key=lambda row: row[0])
    detail = f"{size} bytes, {ranks} ranks, {len(rows)} sizes"
    listed = [Value(name="wrong", entity="node", value=float(sum(wrong)), count=len(wrong), detail=detail)]
    if size < _LEAST_BYTES:
        text = f"{detail}: the floors are for 16 GiB (-b 16G -e 16G)"
        return [*listed, Value(name="busbw", entity="node", value=None, reason=Reason.TOO_FEW, detail=text)]
    return [*listed, Value(name="busbw", entity="node", value=min(speeds), count=ranks, detail=detail)]


_Rows = list[tuple[int, list[float], list[float]]]


def _of_json(found: dict[str, Any]) -> tuple[int, _Rows]:
    # Only the first device of each process is listed, with any -t and -g.
    each = int(field(found, "config", "nthreads")) * int(field(found, "config", "ngpus"))
    ranks = len(field(found, "config", "devices")) * each
    count = field(found, "out_of_bounds", "count")
    rows = []
    for one in field(found, "results"):
        ways = [one[way] for way in ("out_of_place", "in_place") if one.get(way)]
        rows.append(
            (
                int(field(one, "size")),
                _all((field(way, "bus_bw") for way in ways), "bus_bw"),
                _all((field(way, "nwrong") for way in ways), "nwrong"),
            )
        )
    if count and not any(wrong for _, _, counts in rows for wrong in counts):
        raise BadOutput(f"{count} values out of bounds, and no size that has them")
    return ranks, rows


def _of_table(text: str) -> tuple[int, _Rows]:
    if "# Out of bounds values" not in text:
        raise BadOutput("its last lines (Out of bounds values) are missing")
    rows = []
    for found in _ROW.finditer(text):
        cells = found[2].split()  # time, algbw, busbw, #wrong, out of place and in place
        rows.append((int(found[1]), _all(cells[2::4], "busbw"), _all(cells[3::4], "#wrong")))
    return len(_RANK.findall(text)), rows


def _all(cells: Iterable[Any], what: str) -> list[float]:
    return [number(cell, what) for cell in cells]
