"""What the kernels told in the whole run: between loads, in a fault's window, on nameless cards."""

import time

import pytest

from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node, NodeAccess
from rackgate.nouns.target import EngineSpec, Member, Target
from rackgate.telemetry.assembly import TelemetryPlan, kernel_log_of
from rackgate.telemetry.kernel.local_source import KernelLogSource, may_be_read
from rackgate.telemetry.kernel.remote_source import RemoteKernelLog
from rackgate.telemetry.kernel.run_events import (
    RUN_FIELDS,
    RUN_PROBES,
    event_entries,
    judged_of_run,
    probe_run,
)
from rackgate.telemetry.reading import KERNEL_EVENTS, Reading
from rackgate.telemetry.sampler import Sampler
from rackgate.telemetry.table import TelemetryTable

SECOND = 1_000_000_000
RUN = (10 * SECOND, 1000 * SECOND)
CARDS = (
    Card(name="n1/gpu0", node="n1", index=0, pci="0000:1b:00.0", serial="S0"),
    Card(name="n1/gpu1", node="n1", index=1),
)
ENGINES = tuple(
    EngineSpec(
        name=f"e{card.index}",
        launcher="process",
        model="m",
        members=(Member(node="n1", cards=(card.name,)),),
    )
    for card in CARDS
)
TARGET = Target(
    name="rack",
    model="m",
    grade="accelerator",
    nodes=(Node(name="n1", cards=CARDS), Node(name="n2")),
    engines=ENGINES,
)


def watched(node="n1", until_s=1000.0):
    return [Reading(round(at_s * SECOND), node, node, "xid_watch", 1.0) for at_s in (300, until_s)]


def xid(code, at_s, entity="n1/gpu0", text=""):
    return Reading(round(at_s * SECOND), "n1", entity, "xid", float(code), None, text)


def told(rows, faults=(), profile="ci"):
    table = TelemetryTable.from_readings(rows)
    judged = judged_of_run(TARGET, table, RUN, faults=faults, profile=profile)
    found = probe_run(judged, table, RUN, SECOND)
    return {metric: found[metric, "n1"] for metric in RUN_PROBES}


def values(rows, **how):
    return [one.value for one in told(rows, **how).values()]


@pytest.mark.parametrize("at_s", [11, 299, 450.5, 999])
def test_an_xid_at_any_moment_of_the_run_counts(at_s):
    rows = [*watched(), xid(79, at_s)]
    found = told(rows)["xids_in_run"]
    assert (found.value, f"n1/gpu0, {at_s - 10:.0f} s after the begin" in found.detail) == (1.0, True)
    assert values([*watched(), xid(79, 9)]) == [0.0, 0.0, 0.0, 0.0]


def test_each_class_has_a_metric_of_its_own():
    oom, aer = (
        Reading(20 * SECOND, "n1", "n1", "kernel_event", float(KERNEL_EVENTS[kind]), None, kind)
        for kind in ("oom", "aer")
    )
    rows = [*watched(), xid(48, 20), xid(92, 20), xid(92, 30), oom, aer, aer, aer]
    assert values(rows) == [1.0, 2.0, 1.0, 3.0]
    assert values([*watched(), xid(94, 20)], profile="signoff") == [1.0, 0.0, 0.0, 0.0]


def test_what_our_own_kill_makes_is_left_out_and_hides_nothing_else():
    fault = FaultTimeline(kind="kill", entity="n1/gpu0", injected_ns=100 * SECOND, healed_ns=110 * SECOND)
    ours = [*watched(), xid(43, 101), xid(45, 102)]
    assert values(ours) == [0.0, 2.0, 0.0, 0.0]
    assert values(ours, faults=[fault]) == [0.0, 0.0, 0.0, 0.0]
    assert values([*ours, xid(79, 103)], faults=[fault])[0] == 1.0
    assert values([*ours, xid(43, 200)], faults=[fault])[1] == 1.0


def test_each_event_is_told_with_whose_it_is_and_the_fault_that_explains_it():
    fault = FaultTimeline(kind="kill", entity="n1/gpu0", injected_ns=100 * SECOND, healed_ns=110 * SECOND)
    nameless = xid(79, 30, entity="n1", text="gone (PCI 0000:2b:00.0)")
    table = TelemetryTable.from_readings([*watched(), xid(45, 101), nameless])
    judged = judged_of_run(TARGET, table, RUN, faults=[fault], profile="ci")
    (lost_ns, lost), (ours_ns, ours) = event_entries(judged, TARGET)
    assert (lost_ns, lost["entity"], lost["pci"]) == (30 * SECOND, "n1", "0000:2b:00.0")
    assert (lost["verdict"], lost["serial"], lost["fault"]) == ("FAIL", None, None)
    assert (ours_ns, ours["entity"], ours["pci"]) == (101 * SECOND, "n1/gpu0", "0000:1b:00.0")
    assert ours["serial"] == "S0"
    assert (ours["verdict"], ours["fault"]) == ("PASS", "kill of n1/gpu0")
    assert ours["text"].endswith("of n1/gpu0: counts as PASS, expected: our own kill of n1/gpu0")


def test_a_kill_explains_what_a_card_without_an_address_tells_on_its_node():
    fault = FaultTimeline(kind="kill", entity="n1/gpu1", injected_ns=100 * SECOND, healed_ns=110 * SECOND)
    on_node = xid(45, 101, entity="n1", text="Ch 00000008 (PCI 0000:2b:00.0)")
    assert values([*watched(), on_node]) == [0.0, 1.0, 0.0, 0.0]
    assert values([*watched(), on_node], faults=[fault]) == [0.0, 0.0, 0.0, 0.0]
    other = FaultTimeline(kind="kill", entity="n1/gpu0", injected_ns=100 * SECOND, healed_ns=110 * SECOND)
    assert values([*watched(), on_node], faults=[other]) == [0.0, 1.0, 0.0, 0.0]


def test_cards_without_a_declared_address_are_told_apart_by_it():
    def fault(address, at_s):
        return xid(31, at_s, entity="n1", text=f"MMU Fault (PCI {address})")

    two_cards = [*watched(), fault("0000:2b:00.0", 20), fault("0000:3b:00.0", 30)]
    assert values(two_cards) == [0.0, 2.0, 0.0, 0.0]
    assert "n1 at 0000:3b:00.0" in told(two_cards)["xids_warned_in_run"].detail
    assert values([*two_cards, fault("0000:2b:00.0", 40)])[0] == 2.0


def test_what_the_driver_and_the_log_both_tell_of_a_card_without_an_address_is_one():
    rows = [
        *watched(),
        xid(31, 20.4, entity="n1/gpu1"),
        xid(31, 20, entity="n1", text="MMU Fault (PCI 0000:2b:00.0)"),
    ]
    assert values(rows) == [0.0, 1.0, 0.0, 0.0]
    assert values([*rows, xid(31, 25, entity="n1/gpu1")]) == [0.0, 2.0, 0.0, 0.0]


def test_a_log_that_was_not_read_to_the_end_leaves_the_run_open():
    assert {one.reason for one in told(watched(until_s=900)).values()} == {Reason.STALE}
    assert {one.reason for one in told([]).values()} == {Reason.ABSENT}
    gap = Reading(400 * SECOND, "n1", "n1", "xid_watch", None, Reason.INSTRUMENT, "n1 rebooted at 2026")
    assert {one.reason for one in told([*watched(), gap]).values()} == {Reason.INSTRUMENT}
    assert told([*watched(), gap, xid(79, 20)])["xids_in_run"].value == 1.0


def test_an_xid_of_no_known_class_leaves_the_run_open():
    found = told([*watched(), xid(999, 20)])["xids_in_run"]
    assert (found.value, found.reason, "XID 999" in found.detail) == (None, Reason.UNSUPPORTED, True)


def test_events_of_the_whole_run_are_found_again_on_disk_without_the_other_signals(tmp_path):
    path = tmp_path / "kern.log"
    lost = f"[{time.perf_counter_ns() / 1e9:.6f}] NVRM: Xid (PCI:0000:1b:00): 79, gone\n"
    path.write_text(lost)
    source = KernelLogSource(Node(name="n1", cards=CARDS), path, card_of={"0000:1b:00.0": "n1/gpu0"})
    sampler = Sampler([source], tmp_path / "telemetry.parquet", interval_s=0.05)
    begin = time.perf_counter_ns() - 10 * SECOND
    sampler.start()
    try:
        while not sampler.last_look_ns:
            time.sleep(0.01)
        sampler.take([Reading(time.perf_counter_ns(), "n1", "n1/gpu0", "power_w", 400.0)])
        sampler.flush()
        now = time.perf_counter_ns()
        while sampler.last_look_ns <= now:
            time.sleep(0.01)
        table = sampler.window(begin, time.perf_counter_ns(), fields=RUN_FIELDS)
    finally:
        sampler.stop()
    assert table.fields("n1/gpu0") == ("xid",)
    assert table.fields("n1") == ("xid_watch",)
    judged = judged_of_run(TARGET, table, (begin, now), faults=(), profile="ci")
    found = probe_run(judged, table, (begin, now), 0)
    assert found["xids_in_run", "n1"].value == 1.0


def test_this_machines_log_is_followed_by_the_journal_where_its_device_may_not_be_read(tmp_path):
    from pathlib import Path

    node = Node(name="n1", access=NodeAccess(local=True))
    log = kernel_log_of(node, node.access, TelemetryPlan())
    kind = KernelLogSource if may_be_read(Path("/dev/kmsg")) else RemoteKernelLog
    assert isinstance(log, kind)
    log.close()
    assert not may_be_read(tmp_path / "nothing")
