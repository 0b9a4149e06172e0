import pytest

from rackgate.diagnosis.co_occurring_events import CoOccurringEvent, co_occurring_events, gateway_imbalance
from rackgate.diagnosis.correlate import correlate
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.load import Origin
from rackgate.nouns.measurement import Reason
from rackgate.nouns.sample import Outcome, Sample
from rackgate.telemetry.reading import Reading
from rackgate.telemetry.table import TelemetryTable

SECOND = 1_000_000_000


def event(kind, start_s, end_s, entity="n1/gpu0"):
    return CoOccurringEvent(
        kind=kind, entity=entity, text=kind, start_ns=int(start_s * SECOND), end_ns=int(end_s * SECOND)
    )


def test_what_overlaps_most_comes_first():
    events = [event("short", 11, 12), event("long", 10, 18), event("elsewhere", 30, 40)]
    found = correlate([(10 * SECOND, 20 * SECOND)], events)
    assert [(one.event.kind, one.overlap_s, one.share) for one in found] == [
        ("long", 8.0, 0.8),
        ("short", 1.0, 0.1),
    ]


def test_of_equal_overlap_the_one_that_fits_better_comes_first():
    events = [event("always", 0, 1000), event("exact", 10, 20)]
    found = correlate([(10 * SECOND, 20 * SECOND)], events)
    assert [one.event.kind for one in found] == ["exact", "always"]


def test_a_moment_has_some_slack():
    found = correlate([(10 * SECOND, 20 * SECOND)], [event("xid", 9.5, 9.5)])
    assert [one.overlap_s for one in found] == [pytest.approx(0.5)]
    assert correlate([(10 * SECOND, 20 * SECOND)], [event("xid", 8.0, 8.0)]) == ()


def test_windows_that_overlap_count_once():
    windows = [(10 * SECOND, 20 * SECOND), (15 * SECOND, 25 * SECOND)]
    (found,) = correlate(windows, [event("throttle", 0, 100)])
    assert (found.overlap_s, found.share) == (15.0, 1.0)


def test_what_happened_several_times_is_said_once_with_the_time_of_all():
    events = [event("queue", 11, 13), event("queue", 15, 18), event("queue", 12, 13, "n1/gpu1")]
    found = correlate([(10 * SECOND, 20 * SECOND)], events)
    assert [(one.event.entity, one.overlap_s, one.share) for one in found] == [
        ("n1/gpu0", 5.0, 0.5),
        ("n1/gpu1", 1.0, 0.1),
    ]


def test_it_says_that_it_was_seen_and_not_that_it_was_the_cause():
    (found,) = correlate([(0, 10 * SECOND)], [event("throttle", 0, 5)])
    assert found.text == "seen at the same time: throttle on n1/gpu0 (50% of the time)"


def readings(field, values, entity="n1/gpu0"):
    return [
        Reading(second * SECOND, "n1", entity, field, value, None if value is not None else Reason.BLANK)
        for second, value in enumerate(values)
    ]


def happened(rows, faults=()):
    found = co_occurring_events(TelemetryTable.from_readings(rows), faults)
    return [(one.kind, one.entity, one.text, one.start_ns // SECOND, one.end_ns // SECOND) for one in found]


def test_throttle_bits_become_spans():
    rows = readings("clock_event_reasons", [0, 0x48, 0x48, 0x4, 0, 0x80, 0])
    assert happened(rows) == [
        ("throttle", "n1/gpu0", "sw_power_cap", 3, 4),
        ("throttle", "n1/gpu0", "hw_slowdown", 1, 3),
        ("throttle", "n1/gpu0", "hw_thermal_slowdown", 1, 3),
        ("throttle", "n1/gpu0", "hw_power_brake", 5, 6),
    ]


def test_missing_telemetry_is_something_that_happened():
    rows = readings("clock_event_reasons", [0, None, None, 0])
    assert [one[0::3] for one in happened(rows)] == [("silence", 1)]


def test_a_queue_that_grows_and_counters_that_grow_are_seen():
    rows = readings("requests_waiting", [0, 1, 0, 9, 12, 0, 0], "engine-1")
    rows += readings("pcie_replays", [5, 5, 8, 8])
    assert happened(rows) == [
        ("queue", "engine-1", "queue grew to 12 requests", 3, 5),
        ("errors", "n1/gpu0", "3 PCIe replays", 1, 2),
    ]


def test_xids_and_our_own_faults_are_seen():
    rows = [Reading(4 * SECOND, "n1", "n1/gpu0", "xid", 79.0)]
    fault = FaultTimeline(kind="kill", entity="engine-1", injected_ns=3 * SECOND, healed_ns=6 * SECOND)
    assert happened(rows, [fault]) == [
        ("xid", "n1/gpu0", "XID 79", 4, 4),
        ("fault", "engine-1", "our own fault: kill", 3, 6),
    ]


def test_a_link_that_goes_down_is_seen_and_one_that_was_down_all_along_is_not():
    rows = readings("network_links_down", [1, 1, 2, 2, 1], "n1")
    rows += readings("infiniband_ports_down", [1, 1, 1, 1, 1], "n1")
    rows += readings("nvlinks_up", [18, 18, 17, 18, 18])
    assert happened(rows) == [
        ("link", "n1", "1 network links down", 2, 4),
        ("link", "n1/gpu0", "1 NVLinks down", 2, 3),
    ]


def test_a_leak_and_a_lost_power_supply_are_seen():
    rows = readings("leak_detectors_wet", [0, 0, 1, 0], "n1") + readings(
        "power_supplies_bad", [0, 1, 1], "n1"
    )
    assert sorted(happened(rows)) == [
        ("leak", "n1", "a leak detector was wet", 2, 3),
        ("power", "n1", "1 power supplies bad", 1, 3),
    ]


def test_an_event_of_the_kernel_is_seen_with_its_words():
    words = "Out of memory: Killed process 4242 (python3)"
    rows = [Reading(4 * SECOND, "n1", "n1", "kernel_event", 2.0, None, words)]
    assert happened(rows) == [("kernel", "n1", f"kernel: {words}", 4, 4)]


def through_gateway(*shares, seconds=10, rate=40):
    """Return requests of a gateway; each share is how many of ten go to that engine, in each second."""
    samples = []
    for number in range(seconds * rate):
        place = number % 10
        engine = next(f"e{index}" for index in range(len(shares)) if place < sum(shares[: index + 1]))
        start = number * SECOND // rate
        samples.append(
            Sample(
                request_id=f"r{number}",
                engine="gateway",
                load="l",
                label="x",
                outcome=Outcome.OK,
                scheduled_ns=start,
                sent_ns=start,
                served_by=engine,
            )
        )
    return SampleTable.from_samples(samples, Origin.SENT)


def test_an_engine_that_gets_far_more_than_its_share_is_an_imbalance():
    found = list(gateway_imbalance(through_gateway(8, 1, 1), ("e0", "e1", "e2")))
    assert {(one.kind, one.entity, one.text) for one in found} == {
        ("imbalance", "e0", "the gateway gave it 80% of the requests, fair were 33%")
    }
    assert (min(one.start_ns for one in found), max(one.end_ns for one in found)) == (0, 10 * SECOND)


def test_an_engine_that_the_gateway_passes_over_is_seen():
    found = list(gateway_imbalance(through_gateway(5, 5, 0), ("e0", "e1", "e2")))
    assert ("e2", "the gateway gave it no request") in {(one.entity, one.text) for one in found}


@pytest.mark.parametrize(
    ("table", "engines"),
    [
        (through_gateway(5, 5), ("e0", "e1")),
        (through_gateway(4, 3, 3), ("e0", "e1", "e2")),
        (through_gateway(9, 1, seconds=1, rate=10), ("e0", "e1")),
        (through_gateway(10), ("e0",)),
    ],
    ids=["fair", "as fair as it can be", "too few requests", "one engine"],
)
def test_what_is_fair_or_cannot_be_told_is_no_imbalance(table, engines):
    assert list(gateway_imbalance(table, engines)) == []


def test_nothing_happened_where_nothing_was_read():
    assert co_occurring_events(TelemetryTable.from_readings([])) == ()
