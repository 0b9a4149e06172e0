"""`nvbandwidth -j`: copies between host and each card, and between cards, GB/s."""

from __future__ import annotations

import statistics

from rackgate.nouns.measurement import Reason
from rackgate.probes.probe import BadOutput, ProbedNode, Value
from rackgate.probes.strict_json import field, number, one_object

_TESTS = {
    "h2d": "host_to_device_memcpy_ce",
    "d2h": "device_to_host_memcpy_ce",
    "d2d": "device_to_device_memcpy_read_ce",
}


def values(text: str, node: ProbedNode) -> list[Value]:
    """Return `h2d`, `d2h`, `d2d` and `d2d_share` of each card; between cards, of its worst pair."""
    found = field(one_object(text), "nvbandwidth")
    if "error" in found:
        raise BadOutput(f"nvbandwidth could not run: {str(found['error'])[:200]}")
    devices = len(field(found, "GPU Device list"))
    node.same_cards(devices, "nvbandwidth")
    cases = {field(case, "name"): case for case in field(found, "testcases")}
    listed: list[Value] = []
    for name, test in _TESTS.items():
        case = cases.get(test, {"status": "not in the output"})
        names = (name, "d2d_share") if name == "d2d" else (name,)
        if case["status"] != "Passed":
            text = f"{test}: {case['status']} {case.get('error', '')}".strip()
            listed += [_none(value, card, text) for value in names for card in range(devices)]
            continue
        matrix = _matrix(field(case, "bandwidth_matrix"), devices, test, between=name == "d2d")
        for card in range(devices):
            listed += _of_card(name, card, matrix, test)
    return listed


_Speeds = dict[tuple[int, int], float]


def _matrix(rows: list[list[str]], devices: int, test: str, *, between: bool) -> _Speeds:
    """Return speeds by (row, column), without those of a card with itself."""
    if len(rows) != (devices if between else 1) or any(len(row) != devices for row in rows):
        raise BadOutput(f"its matrix has not {devices} columns")
    return {
        (row, column): number(cell, test)
        for row, cells in enumerate(rows)
        for column, cell in enumerate(cells)
        if cell != "N/A" and not (between and row == column)
    }


def _of_card(name: str, card: int, matrix: _Speeds, test: str) -> list[Value]:
    between = name == "d2d"
    mine = [speed for place, speed in matrix.items() if card in (place if between else place[1:])]
    names = ("d2d", "d2d_share") if between else (name,)
    if not mine:
        return [_none(value, card, f"{test}: no figure") for value in names]
    entity, count = f"gpu{card}", len(mine)
    listed = [Value(name=name, entity=entity, value=min(mine), count=count)]
    if between:
        middle = statistics.median(matrix.values())
        detail = f"worst pair {min(mine):g} GB/s, median of {len(matrix)} pairs {middle:g}"
        share = min(mine) / middle if middle > 0 else 0.0
        listed.append(Value(name="d2d_share", entity=entity, value=share, count=count, detail=detail))
    return listed


def _none(name: str, card: int, detail: str) -> Value:
    return Value(name=name, entity=f"gpu{card}", value=None, reason=Reason.ABSENT, detail=detail)
