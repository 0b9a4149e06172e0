"""`nvbandwidth -j`: copies between host and each card, and between cards, GB/s."""

from __future__ import annotations

from rackgate.measurement import Reason
from rackgate.probes.json_text import field, number, one_object
from rackgate.probes.probe import Asked, BadOutput, Value

__all__ = ["values"]

_TESTS = {
    "h2d": "host_to_device_memcpy_ce",
    "d2h": "device_to_host_memcpy_ce",
    "d2d": "device_to_device_memcpy_read_ce",
}


def values(text: str, asked: Asked) -> list[Value]:
    """Return `h2d`, `d2h` and `d2d` of each card; between cards the worst of its pairs counts."""
    found = field(one_object(text), "nvbandwidth")
    if "error" in found:
        raise BadOutput(f"nvbandwidth could not run: {str(found['error'])[:200]}")
    devices = len(field(found, "GPU Device list"))
    asked.same_cards(devices, "nvbandwidth")
    cases = {field(case, "name"): case for case in field(found, "testcases")}
    listed: list[Value] = []
    for name, test in _TESTS.items():
        case = cases.get(test, {"status": "not in the output"})
        for card in range(devices):
            if case["status"] != "Passed":
                text = f"{test}: {case['status']} {case.get('error', '')}".strip()
                listed.append(_none(name, card, text))
                continue
            cells = _cells(field(case, "bandwidth_matrix"), card, devices, between=name == "d2d")
            speeds = [number(cell, test) for cell in cells if cell != "N/A"]
            if not speeds:
                listed.append(_none(name, card, f"{test}: no figure"))
                continue
            listed.append(Value(name=name, entity=f"gpu{card}", value=min(speeds), count=len(speeds)))
    return listed


def _none(name: str, card: int, detail: str) -> Value:
    return Value(name=name, entity=f"gpu{card}", value=None, reason=Reason.ABSENT, detail=detail)


def _cells(matrix: list[list[str]], card: int, devices: int, *, between: bool) -> list[str]:
    if len(matrix) != (devices if between else 1) or any(len(row) != devices for row in matrix):
        raise BadOutput(f"its matrix has not {devices} columns")
    return [*matrix[card], *(row[card] for row in matrix)] if between else [matrix[0][card]]
