"""`dcgmi diag -j` of DCGM 4: the tests of each card that failed or were skipped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from rackgate.nouns.measurement import Reason
from rackgate.probes.probe import BadOutput, ProbedNode, Value
from rackgate.probes.strict_json import field, objects

_STATUSES = ("Pass", "Fail", "Warn", "Skip")


def values(text: str, node: ProbedNode) -> list[Value]:
    """Return `not_passed` of each card: the number of its failed tests; a skipped test is no pass.

    A test that failed or was skipped as a whole, and on no single card, counts for every card. The output may
    hold several runs, one after the other.
    """
    documents = objects(text)
    for found in documents:
        _check(found)
    serials = {card: serial for found in documents for card, serial in _serials(found).items()}
    tests = [
        test
        for found in documents
        for one in field(found, "DCGM Diagnostic", "test_categories")
        for test in field(one, "tests")
    ]
    by_card: dict[int, dict[str, list[str]]] = {card: defaultdict(list) for card in serials}
    for test in tests:
        for card, status, line in _results(test, list(by_card)):
            by_card.setdefault(card, defaultdict(list))[status].append(line)
    return [
        _of_card(node.index_of(card, serials.get(card, "")), by_card[card], node) for card in sorted(by_card)
    ]


def _check(found: dict[str, Any]) -> None:
    error = found.get("DCGM Diagnostic", {}).get("runtime_error")
    if error:
        raise BadOutput(f"dcgmi could not run: {str(error)[:200]}")
    version = str(field(found, "metadata", "version"))
    if version.split(".", maxsplit=1)[0] != "4":
        raise BadOutput(f"written by DCGM {version}; known is the output of 4")


def _serials(found: dict[str, Any]) -> dict[int, str]:
    groups = [group for group in found.get("entity_groups", ()) if group.get("entity_group") == "GPU"]
    return {one["entity_id"]: str(one.get("serial_num", "")) for group in groups for one in group["entities"]}


def _results(test: dict[str, Any], cards: list[int]) -> Iterator[tuple[int, str, str]]:
    own = [one for one in test.get("results", ()) if one.get("entity_group") == "GPU"]
    for one in own:
        yield int(field(one, "entity_id")), _status(test, one), _line(test, one)
    whole = test.get("test_summary", {"status": "Pass"})
    if _status(test, whole) != "Pass" and all(_status(test, one) == "Pass" for one in own):
        for card in cards:
            yield card, _status(test, whole), _line(test, whole)


def _status(test: dict[str, Any], said: dict[str, Any]) -> str:
    status = str(field(said, "status"))
    if status not in _STATUSES:
        raise BadOutput(f"test {field(test, 'name')} has the status '{status}'")
    return status


def _line(test: dict[str, Any], said: dict[str, Any]) -> str:
    warnings = "; ".join(str(each.get("warning")) for each in said.get("warnings", ()))
    return f"{field(test, 'name')}: {warnings}".rstrip(": ")


def _of_card(card: int, by_status: dict[str, list[str]], node: ProbedNode) -> Value:
    name, entity = "not_passed", f"gpu{card}"
    bad = by_status["Fail"] + by_status["Warn"]
    ran = {line.split(":")[0] for line in by_status["Pass"] + bad}
    skipped = [line for line in by_status["Skip"] if line.split(":")[0] not in node.may_skip]
    lacking = [test for test in node.expects if test not in ran | node.may_skip]
    if not bad and (skipped or lacking or not ran):
        named = "; ".join([*skipped, *(f"{test} did not run" for test in lacking)])[:300]
        text = f"skipped: {named}" if named else "no test ran on it"
        return Value(name=name, entity=entity, value=None, reason=Reason.ABSENT, detail=text)
    detail = "; ".join(bad)[:400] or f"passed: {', '.join(sorted(ran))}"
    return Value(name=name, entity=entity, value=float(len(bad)), count=len(ran), detail=detail)
