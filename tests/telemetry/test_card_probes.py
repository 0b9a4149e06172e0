import time

import pytest

from rackgate.measurement import Reason
from rackgate.telemetry.card_probes import (
    CARD_PROBES,
    NODE_PROBES,
    probe_events,
    probe_fabric,
    probe_hosts,
    probe_readings,
)
from rackgate.telemetry.event_book import EventBook
from rackgate.telemetry.host import Fact
from rackgate.telemetry.kernel_log import parse_log
from rackgate.telemetry.reading import Reading

CARD = "n1/gpu0"


def reading(field, value, entity=CARD, reason=None):
    return Reading(1, "n1", entity, field, value, reason or (Reason.BLANK if value is None else None), "why")


@pytest.mark.parametrize(
    ("field", "metric"),
    [
        ("recovery_action", "recovery_action"),
        ("row_remap_pending", "row_remap_pending"),
        ("row_remap_failed", "row_remap_failed"),
        ("ecc_volatile_uncorrectable", "ecc_volatile_uncorrectable"),
        ("nvlinks_up", "nvlinks_up"),
        ("memory_used_mib", "memory_in_use_mib"),
    ],
)
def test_a_reading_is_a_probe_with_its_value_or_its_reason(field, metric):
    assert probe_readings([reading(field, 3.0)], [CARD])[metric, CARD].value == 3.0
    unread = probe_readings([reading(field, None)], [CARD])[metric, CARD]
    assert (unread.value, unread.reason) == (None, Reason.BLANK)
    assert probe_readings([], [CARD]) == {}


def test_lanes_are_counted_against_the_cards_best():
    rows = [reading("pcie_width", 8.0), reading("pcie_width_max", 16.0)]
    found = probe_readings(rows, [CARD])["pcie_width_lost", CARD]
    assert (found.value, found.detail) == (8.0, "x8 of x16")
    rows[1] = reading("pcie_width_max", None)
    assert probe_readings(rows, [CARD])["pcie_width_lost", CARD].reason == Reason.BLANK


def fabric(*rows):
    found = []
    for index, (state, clique) in enumerate(rows):
        found.append(
            reading(
                "fabric_state", state, f"n1/gpu{index}", None if state is not None else Reason.UNSUPPORTED
            )
        )
        found.append(
            reading(
                "fabric_clique", clique, f"n1/gpu{index}", None if clique is not None else Reason.UNSUPPORTED
            )
        )
    cards = {f"n1/gpu{index}": "n1" for index in range(len(rows))}
    return probe_fabric(found, cards)["fabric_outside", "n1"]


def test_a_card_in_another_clique_is_outside():
    found = fabric((3, 7), (3, 7), (3, 8), (3, 7))
    assert (found.value, "n1/gpu2" in found.detail) == (1.0, True)
    assert fabric((3, 7), (3, 7)).value == 0.0
    assert fabric((2, 7), (2, 7)).value == 2.0


def test_one_card_without_a_fabric_is_fine_and_one_of_several_is_not():
    assert fabric((None, None)).value == 0.0
    assert fabric((3, 7), (3, 7), (None, None)).value == 1.0


def test_a_fabric_that_nobody_asked_about_is_unknown():
    found = probe_fabric([], {CARD: "n1", "n1/gpu1": "n1"})["fabric_outside", "n1"]
    assert found.reason == Reason.ABSENT


def facts(**changes):
    known = {
        "kernel": "6.8",
        "nvidia_loaded": "yes",
        "nouveau_loaded": "no",
        "driver_module": "580.1",
        "driver_on_disk": "580.1",
        "driver_library": "580.1",
        "shm_bytes": str(64 << 30),
        "memlock_bytes": "unlimited",
        "clock_offset_s": "0.0001",
    }
    return {name: Fact(value) for name, value in {**known, **changes}.items()}


def test_a_host_is_counted_by_its_findings_and_its_differences():
    nodes = {"n1": facts(), "n2": facts(), "n3": facts(nouveau_loaded="yes", clock_offset_s="-0.004")}
    found = probe_hosts(nodes, dict.fromkeys(nodes, 8))
    assert [found["host_failures", node].value for node in nodes] == [0.0, 0.0, 1.0]
    assert "nouveau is loaded" in found["host_failures", "n3"].detail
    assert [found["host_outliers", node].value for node in nodes] == [0.0, 0.0, 1.0]
    assert found["clock_offset_s", "n3"].value == 0.004
    assert found["host_warnings", "n3"].value == 1.0


def test_a_host_that_did_not_answer_is_unknown():
    silent = dict.fromkeys(facts(), Fact(None, Reason.TIMEOUT, "n1 did not answer"))
    found = probe_hosts({"n1": silent}, {"n1": 8})
    assert (found["host_failures", "n1"].value, found["host_failures", "n1"].reason) == (None, Reason.TIMEOUT)


def test_xids_from_before_the_run_are_reported_apart():
    book = EventBook("n1", {"0000:1b:00.0": CARD})
    book.add(parse_log("[    5.000000] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n"))
    now = time.perf_counter_ns()
    found = probe_events({"n1": book}, {}, max(now, 6 * 10**9))["xids_since_boot", "n1"]
    assert (found.value, found.detail.startswith("n1/gpu0: the card has fallen")) == (1.0, True)
    empty = EventBook("n2")
    assert probe_events({"n2": empty}, {}, now)["xids_since_boot", "n2"].value == 0.0
    denied = probe_events({"n2": empty}, {"n2": "may not be read"}, now)["xids_since_boot", "n2"]
    assert denied.reason == Reason.NO_PERMISSION


def test_every_probe_has_a_unit_and_a_definition():
    assert all(unit and text.endswith(("...", ".")) for unit, text in (CARD_PROBES | NODE_PROBES).values())
