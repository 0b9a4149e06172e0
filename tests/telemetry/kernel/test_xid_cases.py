"""The XID-* field cases: each log gives what `expected.json` says."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rackgate.config.acceptance_file import load_acceptance
from rackgate.judging.judge import judge
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.slo import Check
from rackgate.nouns.verdict import Verdict
from rackgate.preflight.kernel_events import probe_events
from rackgate.telemetry.kernel.event_history import EventBook
from rackgate.telemetry.kernel.kernel_log import parse_log, place

CASES = Path(__file__).parents[2] / "cases"
EXPECTED = {
    name: case["expected"] for name, case in json.loads((CASES / "expected.json").read_text()).items()
}
REGISTRY = shipped_registry()
SHIPPED = load_acceptance(None, "smoke", metrics=REGISTRY.metrics, target=None)
NOW = datetime(2026, 7, 15, tzinfo=UTC)


def events(name):
    return parse_log((CASES / "inputs" / name).read_text(), now=NOW)


def since_boot(name, metric="xids_since_boot"):
    """Return preflight's measurement of a log, and the verdict of the shipped row on it."""
    book = EventBook("n1")
    book.add(events(name))
    measured = probe_events({"n1": book}, {}, 2**62, "ci")[metric, "n1"]
    row = next(one for one in SHIPPED.slos if one.metric == metric)
    return measured, judge(Check(slo=row, entity="n1"), measured).verdict


def as_case(event, keys):
    own = {"bdf": event.pci, "xid": event.code, "pid": event.pid, "name": event.process}
    return {key: own[key] if key in own else event.details.get(key) for key in keys}


@pytest.mark.parametrize(
    ("name", "metric", "verdict"),
    [
        ("XID-01.log", "xids_since_boot", Verdict.FAIL),
        ("XID-02.log", "xids_since_boot", Verdict.FAIL),
        ("XID-02.log", "xids_warned_since_boot", Verdict.WARN),
        ("XID-03.log", "xids_since_boot", Verdict.FAIL),
        ("XID-03.log", "xids_warned_since_boot", Verdict.WARN),
        ("XID-05.log", "xids_since_boot", Verdict.FAIL),
        ("XID-07.log", "xids_since_boot", Verdict.FAIL),
        ("XID-09a.log", "xids_since_boot", Verdict.FAIL),
        ("XID-09b.log", "xids_since_boot", Verdict.FAIL),
        ("XID-09c.log", "xids_since_boot", Verdict.FAIL),
        ("XID-12.journal.jsonl", "kernel_events_since_boot", Verdict.WARN),
        ("XID-14.log", "xids_since_boot", Verdict.FAIL),
        ("XID-14.log", "xids_warned_since_boot", Verdict.PASS),
    ],
)
def test_preflight_judges_each_log(name, metric, verdict):
    assert since_boot(name, metric)[1] == verdict


@pytest.mark.parametrize("case", ["XID-01", "XID-02", "XID-03"])
def test_xid_lines_of_every_form(case):
    found = events(f"{case}.log")
    assert {event.kind for event in found} == {"xid"}
    for event, expected in zip(found, EXPECTED[case]["events"], strict=True):
        assert expected == as_case(event, expected)


def test_xid_05_a_card_can_fall_off_the_bus_without_an_xid():
    found = events("XID-05.log")
    lost = [event for event in found if event.kind != "probe_failed"]
    assert len(lost) == EXPECTED["XID-05"]["event_count"]
    for event, expected in zip(lost, EXPECTED["XID-05"]["events"], strict=True):
        assert (event.kind, event.pci) == (expected["kind"], expected["bdf"])
        assert (event.code, event.equivalent_xid) == (expected.get("xid"), expected.get("equivalent_xid"))
    (probe,) = [event for event in found if event.kind == "probe_failed"]
    assert probe.details["devices"] == EXPECTED["XID-05"]["probe_failed_devices"]


def test_xid_07_a_switch_is_no_card():
    found = events("XID-07.log")
    assert len([event for event in found if event.kind == "xid"]) == EXPECTED["XID-07"]["gpu_xids"]
    for event, expected in zip(found, EXPECTED["XID-07"]["sxids"], strict=True):
        own = {"bdf": event.pci, "sxid": event.code}
        assert expected == {key: own[key] if key in own else event.details.get(key) for key in expected}


def test_xid_09_a_mismatch_in_any_wrapping():
    for name, expected in zip("abc", EXPECTED["XID-09"]["mismatches"], strict=True):
        (event,) = events(f"XID-09{name}.log")
        own = {"process": event.process, "pid": event.pid}
        assert event.kind == "api_mismatch"
        assert expected == {key: own[key] if key in own else event.details.get(key) for key in expected}


def test_xid_10_one_event_under_any_stamp():
    found, expected = events("XID-10.log"), EXPECTED["XID-10"]
    assert len(found) == expected["matches"]
    assert {(event.code, event.pci) for event in found} == {(expected["xid"], expected["bdf"])}
    lines = [event.line for event in found]
    moment = datetime(2026, 2, 14, 5, 3, 41, tzinfo=UTC).timestamp()
    assert [lines[0].boot_us, lines[4].boot_us] == [88231504417, 88231504417]
    assert [round(line.wall_s, 3) for line in (lines[1], lines[2], lines[3], lines[5])] == [
        *(moment, moment + 0.504, moment, moment + 0.504),
    ]


def test_xid_10_what_was_before_the_window_is_not_its_fault():
    found = events("XID-10.log")
    at_ns = 88231504417 * 1000
    offset_ns = at_ns - round(found[2].line.wall_s * 1e9)
    inside = place(found, at_ns - 10**9, at_ns + 10**9, offset_ns)
    assert (len(inside.inside), len(inside.earlier)) == (6, 0)
    after = place(found, at_ns + 10**9, at_ns + 10**10, offset_ns)
    assert (len(after.inside), len(after.earlier)) == (0, 6)


def test_xid_12_only_the_kernels_own_lines_count():
    found, expected = events("XID-12.journal.jsonl"), EXPECTED["XID-12"]
    assert len([event for event in found if event.trusted]) == expected["kernel_events"]
    placed = place(found, 0, 10**18, 0)
    assert len(placed.untrusted) == expected["userspace_lookalikes"]
    counted, _ = since_boot("XID-12.journal.jsonl")
    others, _ = since_boot("XID-12.journal.jsonl", "kernel_events_since_boot")
    assert (counted.value, others.value) == (expected["kernel_events"], expected["userspace_lookalikes"])


def test_xid_14_another_driver_has_the_cards():
    found, expected = events("XID-14.log"), EXPECTED["XID-14"]
    assert len([event for event in found if event.kind == "xid"]) == expected["xids"]
    notice = found[0]
    assert (notice.kind, notice.details["devices"]) == (expected["finding"], expected["devices"])
    assert notice.details["conflicting"][0] == expected["conflicting"]
    assert [event.kind for event in found] == ["driver_not_bound", "no_adapter"]
    measured, _ = since_boot("XID-14.log")
    assert "Blacklist nouveau" in measured.detail
