import time

import pytest

from rackgate.hosts.facts.demands import HostDemands
from rackgate.hosts.facts.fact import Fact
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Expect, Node
from rackgate.preflight.cards import probe_readings
from rackgate.preflight.host_findings import probe_hosts, probe_same
from rackgate.preflight.kernel_events import probe_events
from rackgate.preflight.links import probe_links
from rackgate.telemetry.kernel.event_history import EventBook
from rackgate.telemetry.kernel.kernel_log import parse_log
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


EIGHT = {"n1": HostDemands(cards=8)}


def facts(**changes):
    known = {
        "kernel": "6.8",
        "nvidia_loaded": "yes",
        "nouveau_loaded": "no",
        "driver_module": "580.1",
        "driver_on_disk": "580.1",
        "driver_library": "580.1",
        "driver_answer": "",
        "cuda": "13.0",
        "uvm_loaded": "yes",
        "docker_runtimes": '{"nvidia": {}}',
        "shm_bytes": str(64 << 30),
        "memlock_bytes": "unlimited",
        "clock_offset_s": "0.0001",
        "clock_to_ours": "0.0002 0.0001",
        "module_signer": "vendor",
        "dkms": "nvidia/580.1, 6.8, x86_64: installed",
        "fabric_manager": "inactive",
        "nvswitches": "0",
    }
    return {name: Fact(value) for name, value in {**known, **changes}.items()}


def test_a_host_is_counted_by_its_findings_and_its_differences():
    nodes = {"n1": facts(), "n2": facts(), "n3": facts(nouveau_loaded="yes", clock_offset_s="-0.004")}
    demands = dict.fromkeys(nodes, HostDemands(cards=8))
    found = probe_hosts(nodes, demands) | probe_same(
        nodes, {name: {"nouveau_loaded": one["nouveau_loaded"]} for name, one in nodes.items()}
    )
    assert [found["host_module", node].value for node in nodes] == [0.0, 0.0, 1.0]
    assert "nouveau is loaded" in found["host_module", "n3"].detail
    assert [found["host_outliers", node].value for node in nodes] == [0.0, 0.0, 1.0]
    assert found["clock_offset_s", "n3"].value == 0.004
    assert found["host_warnings", "n3"].value == 1.0


def test_a_host_that_did_not_answer_is_unknown():
    silent = dict.fromkeys(facts(), Fact(None, Reason.TIMEOUT, "n1 did not answer"))
    found = probe_hosts({"n1": silent}, EIGHT)
    assert {(None, Reason.TIMEOUT)} == {(one.value, one.reason) for one in found.values()}


def test_a_step_whose_facts_were_not_read_is_unknown_and_the_others_are_judged():
    found = probe_hosts({"n1": facts() | {"cuda": Fact(None, Reason.NO_PERMISSION, "refused")}}, EIGHT)
    assert (found["host_cuda", "n1"].value, "refused" in found["host_cuda", "n1"].detail) == (None, True)
    assert found["host_driver", "n1"].value == 0.0


def test_what_fails_counts_though_something_else_of_the_step_was_not_read():
    known = facts(nouveau_loaded="yes") | {"nvidia_loaded": Fact(None, Reason.ABSENT, "not there")}
    assert probe_hosts({"n1": known}, EIGHT)["host_module", "n1"].value == 1.0


def test_xids_from_before_the_run_are_reported_apart():
    book = EventBook("n1", {"0000:1b:00.0": CARD})
    book.add(parse_log("[    5.000000] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n"))
    now = time.perf_counter_ns()
    book.add(parse_log("[    5.100000] NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.\n"))
    both = probe_events({"n1": book}, {}, max(now, 6 * 10**9), "ci")
    found, elsewhere = both["xids_since_boot", CARD], both["xids_since_boot", "n1"]
    assert (found.value, found.detail.startswith("0000:1b:00.0: XID 79: the card has")) == (1.0, True)
    assert (elsewhere.value, elsewhere.detail.startswith("0000:2b:00.0: ")) == (1.0, True)
    empty = EventBook("n2")
    assert probe_events({"n2": empty}, {}, now, "ci")["xids_since_boot", "n2"].value == 0.0
    denied = probe_events({"n2": empty}, {"n2": "may not be read"}, now, "ci")
    assert {one.reason for one in denied.values()} == {Reason.NO_PERMISSION}


def since_boot(raw, profile="ci", entity="n1"):
    """Return (XIDs that fail, XIDs that warn, other events) of a log from before the run."""
    book = EventBook("n1", {"0000:1b:00.0": CARD})
    book.add(parse_log(raw))
    found = probe_events({"n1": book}, {}, 2**62, profile)
    names = ("xids_since_boot", "xids_warned_since_boot", "kernel_events_since_boot")
    return [found[name, entity] for name in names if (name, entity) in found]


XID = "[    5.000000] NVRM: Xid (PCI:0000:{}:00): {}, {}\n"


@pytest.mark.parametrize(("code", "text"), [(999, "something new"), (149, "in words that nobody has seen")])
def test_an_xid_of_no_known_class_leaves_preflight_open(code, text):
    failed, warned = since_boot(XID.format("1b", code, text), entity=CARD)
    assert [(one.value, one.reason) for one in (failed, warned)] == [(None, Reason.UNSUPPORTED)] * 2
    assert f"XID {code}" in failed.detail
    both = XID.format("1b", code, text) + XID.format("1b", 79, "gone")
    assert since_boot(both, entity=CARD)[0].value == 1.0


def test_an_xid_of_class_warn_since_boot_is_seen():
    failed, warned, _ = since_boot(XID.format("ff", 92, "high rate"))
    assert (failed.value, warned.value, "XID 92" in warned.detail) == (0.0, 1.0, True)


@pytest.mark.parametrize("profile", ["signoff", "strict"])
def test_since_boot_too_sign_off_is_stricter(profile):
    contained = XID.format("ff", 94, "Contained")
    assert [since_boot(contained, name)[0].value for name in ("ci", profile)] == [0.0, 1.0]
    twice = XID.format("ff", 63, "Row Remapper") * 2
    assert [since_boot(twice, name)[0].value for name in ("ci", profile)] == [0.0, 2.0]


def test_a_killed_process_is_no_fault_of_a_card():
    raw = "[ 5.0] Out of memory: Killed process 4242 (python3)\n[ 6.0] NVRM: No NVIDIA GPU found.\n"
    failed, _, others = since_boot(raw)
    assert (failed.value, "found no card" in failed.detail) == (1.0, True)
    assert (others.value, "Killed process 4242" in others.detail) == (1.0, True)


def test_since_boot_an_event_without_a_time_and_one_that_a_program_wrote_are_seen():
    failed, _, others = since_boot("NVRM: Xid (PCI:0000:ff:00): 79, gone\n")
    assert (failed.value, others.value) == (1.0, 0.0)
    failed, _, others = since_boot("14,2,5000001,-;NVRM: Xid (PCI:0000:ff:00): 79, gone\n")
    assert (failed.value, others.value, "a program wrote this" in others.detail) == (0.0, 1.0, True)


def test_a_leak_detector_that_is_not_enabled_leaves_it_open_unless_another_is_wet():
    def leaks(wet, silent):
        rows = [
            reading("leak_detectors_wet", wet, "n1"),
            reading("leak_detectors_unknown", silent, "n1"),
        ]
        return probe_readings(rows, ["n1"])["leak_detectors_wet", "n1"]

    assert [leaks(0.0, 0.0).value, leaks(1.0, 1.0).value, leaks(0.0, 1.0).value] == [0.0, 1.0, None]
    assert leaks(None, None).reason == Reason.BLANK


@pytest.mark.parametrize(
    ("fact", "lost"),
    [
        ("mlx5_0: ACTIVE 400 Gb/sec (4X NDR); mlx5_1: ACTIVE 400 Gb/sec (4X NDR)", 0.0),
        ("mlx5_0: ACTIVE 400 Gb/sec (4X NDR); mlx5_1: DOWN 10 Gb/sec (4X)", 1.0),
        ("mlx5_0: ACTIVE 400 Gb/sec; mlx5_1: ACTIVE 200 Gb/sec; mlx5_2: ACTIVE 400 Gb/sec", 0.0),
        ("mlx5_0: ACTIVE 400 Gb/sec", 1.0),
        (None, None),
    ],
)
def test_ports_count_where_they_are_active_at_the_rate_of_most(fact, lost):
    node = Node(name="n1", expect=Expect(infiniband_ports=2))
    told = Fact(fact, None if fact else Reason.ABSENT, "" if fact else "no port")
    known = LINKS | {"infiniband": told}
    assert probe_links(node, known)["infiniband_ports_lost", "n1"].value == lost
    assert probe_links(Node(name="n1"), known) == {}


NOTHING = Fact(None, Reason.TOOL_MISSING, "not installed")
LINKS = dict.fromkeys(("infiniband", "partitions", "imex_domain", "nvme_drives"), NOTHING)
PORTS = "mlx5_0: ACTIVE 400 Gb/sec (4X NDR); mlx5_1: ACTIVE 200 Gb/sec (2X NDR)"
KEYS = "mlx5_0/1: 0x7fff limited, 0x0001 full; mlx5_1/1: 0x7fff full"


@pytest.mark.parametrize(
    ("declared", "fact", "metric", "value"),
    [
        ({"infiniband_ports": 2, "infiniband_rate": 200}, PORTS, "infiniband_ports_lost", 0.0),
        ({"infiniband_ports": 2, "infiniband_rate": 400}, PORTS, "infiniband_ports_lost", 1.0),
        ({"infiniband_ports": 2, "infiniband_rate": 800}, PORTS, "infiniband_ports_lost", 2.0),
        ({"partition": "0x8001"}, KEYS, "partition_ports_outside", 1.0),
        ({"partition": "0x7fff"}, KEYS, "partition_ports_outside", 1.0),  # a limited member is none
        ({"partition": "0x0001"}, None, "partition_ports_outside", None),
        ({"imex_nodes": 18}, "UP: 18 of 18 ready", "imex_nodes_lost", 0.0),
        ({"imex_nodes": 18}, "UP: 17 of 17 ready", "imex_nodes_lost", 1.0),
        ({"imex_nodes": 18}, "DEGRADED: 18 of 18 ready", "imex_nodes_lost", 1.0),
        ({"imex_nodes": 18}, None, "imex_nodes_lost", None),
        ({"nvme_drives": 8}, "7", "nvme_drives_lost", 1.0),
        ({"nvme_drives": 8}, "8", "nvme_drives_lost", 0.0),
        ({"nvme_drives": 8}, None, "nvme_drives_lost", None),
    ],
)
def test_links_and_drives_are_compared_with_what_was_ordered(declared, fact, metric, value):
    node = Node(name="n1", expect=Expect(**declared))
    known = dict.fromkeys(LINKS, Fact(fact) if fact else NOTHING)
    found = probe_links(node, known)
    assert {(metric, "n1"): value} == {key: one.value for key, one in found.items()}
