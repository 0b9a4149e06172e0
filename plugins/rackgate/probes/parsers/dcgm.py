"""`dcgmi diag -j` of DCGM 4: each test by card, and what was skipped."""

from __future__ import annotations

from collections import defaultdict

from rackgate.measurement import Reason
from rackgate.probes.json_text import field, one_object
from rackgate.probes.probe import Asked, BadOutput, Value

__all__ = ["values"]

_STATUSES = ("Pass", "Fail", "Warn", "Skip")


def values(text: str, asked: Asked) -> list[Value]:
    """Return `not_passed` of each card: its tests that failed; a test that was skipped is no pass."""
    found = one_object(text)
    error = found.get("DCGM Diagnostic", {}).get("runtime_error")
    if error:
        raise BadOutput(f"dcgmi could not run: {str(error)[:200]}")
    version = str(field(found, "metadata", "version"))
    if version.split(".", maxsplit=1)[0] != "4":
        raise BadOutput(f"written by DCGM {version}; known is the output of 4")
    serials = _serials(found)
    results: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for category in field(found, "DCGM Diagnostic", "test_categories"):
        for test in field(category, "tests"):
            for one in test.get("results", ()):
                status = str(field(one, "status"))
                if status not in _STATUSES:
                    raise BadOutput(f"test {field(test, 'name')} has the status '{status}'")
                if one.get("entity_group") == "GPU":
                    said = "; ".join(str(each.get("warning")) for each in one.get("warnings", ()))
                    card = asked.index_of(int(field(one, "entity_id")), serials.get(one["entity_id"], ""))
                    results[card][status].append(f"{field(test, 'name')}: {said}".rstrip(": "))
    return [_of_card(card, results[card], asked) for card in sorted(results)]


def _serials(found: object) -> dict[int, str]:
    groups = found.get("entity_groups", ()) if isinstance(found, dict) else ()
    entities = [one for group in groups if group.get("entity_group") == "GPU" for one in group["entities"]]
    return {one["entity_id"]: str(one.get("serial_num", "")) for one in entities}


def _of_card(card: int, by_status: dict[str, list[str]], asked: Asked) -> Value:
    name, entity = "not_passed", f"gpu{card}"
    bad = by_status["Fail"] + by_status["Warn"]
    ran = {line.split(":")[0] for line in by_status["Pass"] + bad}
    skipped = [line for line in by_status["Skip"] if line.split(":")[0] not in asked.may_skip]
    lacking = [test for test in asked.expects if test not in ran | asked.may_skip]
    if not bad and (skipped or lacking):
        named = "; ".join([*skipped, *(f"{test} did not run" for test in lacking)])[:300]
        return Value(name=name, entity=entity, value=None, reason=Reason.ABSENT, detail=f"skipped: {named}")
    detail = "; ".join(bad)[:400] or f"passed: {', '.join(sorted(ran))}"
    return Value(name=name, entity=entity, value=float(len(bad)), count=len(ran), detail=detail)
