"""Each metric of a card's health: a load in which it breaks, and one in which nothing is known."""

import pytest

from rackgate.loadgen.results.offered_load import Counters, OfferedLoad
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.metrics.shipped import register_metrics
from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.load import Load
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.nouns.target import EngineSpec, Member, Target
from rackgate.telemetry.reading import KERNEL_EVENTS, Reading
from rackgate.telemetry.table import TelemetryTable

SECOND = 1_000_000_000
CARDS = tuple(Card(name=f"n1/gpu{index}", node="n1", index=index) for index in range(4))
ENGINES = tuple(
    EngineSpec(
        name=f"e{card.index}", launcher="remote", model="m", members=(Member(node="n1", cards=(card.name,)),)
    )
    for card in CARDS
)
TARGET = Target(
    name="rack", model="m", grade="accelerator", nodes=(Node(name="n1", cards=CARDS),), engines=ENGINES
)


def registered():
    found = {}
    register_metrics(lambda name, unit, function, **_: found.update({name: (unit, function)}))
    return found


METRICS = registered()


def offer(begin_s=10, end_s=20):
    load = Load(
        name="interactive", prompt_tokens=1, output_tokens=1, arrival="closed", concurrency=1, looks=(1,)
    )
    offered = OfferedLoad(
        load=load,
        label="all",
        engines=tuple(card.name for card in CARDS),
        start_ns=begin_s * SECOND,
        end_ns=end_s * SECOND,
        steady_start_ns=begin_s * SECOND,
        steady_end_ns=end_s * SECOND,
        counters=Counters(scheduled=1, started=1, dropped=0, outcomes={}),
        samples=None,
        samples_path=None,
        peak_in_flight=1,
        reason=None,
        detail="",
    )
    return LoadRun(load="interactive", label="all", looks=(offered,))


def readings(field, values, entity="n1/gpu0", start=8):
    """One sample a second from 8 s on; the last value goes on until the load ends at 20 s."""
    values = [*values, *[values[-1]] * (13 - len(values))]
    return [
        Reading(
            (start + place) * SECOND,
            "n1",
            entity,
            field,
            value,
            None if value is not None else Reason.BLANK,
            "why",
        )
        for place, value in enumerate(values)
    ]


def measured(metric, rows, entity="n1/gpu0", faults=(), profile="ci", target=TARGET):
    unit, function = METRICS[metric]
    slo = Slo(
        id=f"single_card.{metric}",
        stage="single_card",
        metric=metric,
        statistic="value",
        op=Op.AT_MOST,
        bound=0.0,
        unit=unit,
        scope=Scope.CARD,
        source="test",
        load="interactive",
    )
    seen = Observation(
        stage="single_card",
        target=target,
        load_runs=(offer(),),
        telemetry=None if rows is None else TelemetryTable.from_readings(rows),
        faults=faults,
        profile=profile,
    )
    return function(seen, slo, entity)


@pytest.mark.parametrize(
    ("metric", "rows", "value"),
    [
        ("temperature_margin_c", readings("temperature_margin_c", [30, 20, 9, 4, 8]), 4),
        ("memory_temperature_c", readings("memory_temperature_c", [50, 60, 70, 96, 90]), 96),
        (
            "power_limit_share",
            [*readings("power_w", [100, 100, 600]), *readings("power_limit_w", [700])],
            pytest.approx(600 / 700),
        ),
        (
            "power_peak_share",
            [*readings("power_w", [100, 100, 700, 600]), *readings("power_limit_w", [700])],
            1.0,
        ),
        ("application_clocks_share", readings("clock_event_reasons", [0, 0, 2, 6, 4]), pytest.approx(2 / 11)),
        (
            "performance_state",
            [*readings("performance_state", [8, 0, 2]), *readings("clock_event_reasons", [1, 0, 0])],
            2,
        ),
        ("pcie_replays_per_min", readings("pcie_replays", [5, 5, 5, 9]), 4),
        ("idle_share", readings("clock_event_reasons", [0, 0, 1, 1, 0]), pytest.approx(2 / 11)),
        ("ecc_uncorrectable_growth", readings("ecc_volatile_uncorrectable", [0, 0, 0, 2]), 2),
        ("remapped_rows_growth", readings("remapped_rows_uncorrectable", [1, 1, 1, 2]), 1),
        ("pcie_replay_growth", readings("pcie_replays", [5, 5, 5, 9]), 4),
        ("nvlink_error_growth", readings("nvlink_symbol_errors", [0, 0, 0, 7]), 7),
        ("infiniband_error_growth", readings("infiniband_errors", [3, 3, 3, 7]), 4),
        (
            "leaks_seen",
            [*readings("leak_detectors_wet", [0, 0, 1, 0]), *readings("leak_detectors_unknown", [0])],
            1,
        ),
        (
            "pcie_lost",
            [
                *readings("pcie_generation", [1, 1, 4]),
                *readings("pcie_generation_max", [5]),
                *readings("pcie_width", [16, 16, 8]),
                *readings("pcie_width_max", [16]),
            ],
            9,
        ),
        (
            "throttle_counters_s",
            [
                *readings("sw_thermal_slowdown_ns", [0] * 4),
                *readings("hw_thermal_slowdown_ns", [0, 0, 0, 0.4e9]),
                *readings("hw_power_brake_ns", [0] * 4),
            ],
            pytest.approx(0.4),
        ),
    ],
)
def test_a_card_that_is_not_well_shows_it_and_one_that_is_not_read_says_so(metric, rows, value):
    assert measured(metric, rows).value == value
    silent = [Reading(one.t_ns, one.node, one.entity, one.field, None, Reason.BLANK, "blank") for one in rows]
    assert (measured(metric, silent).value, measured(metric, silent).reason) == (None, Reason.BLANK)
    assert measured(metric, []).reason == Reason.ABSENT
    assert measured(metric, None).reason == Reason.NOT_CONFIGURED


def test_the_hot_card_among_cool_ones_stands_out():
    rows = [one for index in range(3) for one in readings("temperature_c", [60] * 10, f"n1/gpu{index}")]
    rows += readings("temperature_c", [74] * 10, "n1/gpu3")
    assert measured("temperature_deviation_c", rows, "n1/gpu3").value == 14.0
    assert measured("temperature_deviation_c", rows, "n1/gpu0").value == 0.0
    assert measured("temperature_deviation_c", rows[:10]).reason == Reason.TOO_FEW


def of_all(field, *values):
    return [
        one for index, value in enumerate(values) for one in readings(field, [value] * 10, f"n1/gpu{index}")
    ]


def test_the_slow_clock_and_the_other_power_among_peers_stand_out():
    clocks = of_all("sm_clock_mhz", 1980, 1980, 1800, 1188)
    assert measured("sm_clock_to_peers", clocks, "n1/gpu3").value == 0.6
    assert measured("sm_clock_to_peers", clocks, "n1/gpu0").value == 1.1
    power = of_all("power_w", 600, 600, 600, 150)
    assert measured("power_deviation", power, "n1/gpu3").value == 0.75
    assert measured("power_deviation", power, "n1/gpu0").value == 0.0
    assert measured("power_deviation", of_all("power_w", 900, 600, 600, 600)).value == 0.5


@pytest.mark.parametrize("metric", ["sm_clock_to_peers", "power_deviation", "power_cap_shortfall"])
def test_a_card_whose_own_signal_is_blank_is_compared_with_nobody(metric):
    fields = ("sm_clock_mhz", "power_w", "clock_event_reasons", "power_limit_w")
    rows = [one for field in fields for one in of_all(field, None, 4, 4, 4)]
    assert measured(metric, rows).reason == Reason.BLANK
    assert measured(metric, []).reason == Reason.ABSENT
    assert measured(metric, None).reason == Reason.NOT_CONFIGURED


def test_a_card_capped_below_the_limit_of_its_peers_falls_short():
    rows = [
        *of_all("power_w", 500, 700, 700, 700),
        *of_all("power_limit_w", 500, 700, 700, 700),
        *of_all("clock_event_reasons", 4, 4, 4, 4),
    ]
    assert measured("power_cap_shortfall", rows).value == pytest.approx(2 / 7)
    assert measured("power_cap_shortfall", rows, "n1/gpu1").value == 0.0


def xid(code, at_s=15, text="", entity="n1/gpu0"):
    return Reading(at_s * SECOND, "n1", entity, "xid", float(code), None, text)


WATCH = readings("xid_watch", [1.0, 1.0], "n1")


@pytest.mark.parametrize(
    ("code", "text", "failed", "warned"),
    [
        (79, "GPU has fallen off the bus.", 1, 0),
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x0)", 1, 0),
        (149, "NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x004505c6 0x0)", 0, 1),
        (92, "", 0, 1),
        (106, "", 0, 0),
    ],
)
def test_an_xid_counts_as_its_class(code, text, failed, warned):
    rows = [*WATCH, xid(code, text=text)]
    assert measured("xids_failed", rows).value == failed
    assert measured("xids_warned", rows).value == warned


@pytest.mark.parametrize(
    ("code", "text", "metric", "key"),
    [
        (79, "", "xids_failed", "xid:79"),
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x0)", "xids_failed", "xid:149"),
        (149, "NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x0)", "xids_warned", "xid:149:nonfatal"),
        (92, "", "xids_warned", "xid:92"),
    ],
)
def test_an_xid_that_counts_is_a_symptom_by_its_code(code, text, metric, key):
    (symptom,) = measured(metric, [*WATCH, xid(code, text=text)]).symptoms
    assert (symptom.key, symptom.seen) == (key, f"XID {code} on n1/gpu0")


def test_an_xid_of_another_time_or_card_does_not_count():
    rows = [*WATCH, xid(79, at_s=5), xid(79, at_s=30), xid(79, entity="n1/gpu1")]
    assert measured("xids_failed", rows).value == 0
    assert "fallen off the bus" in measured("xids_failed", [*WATCH, xid(79)]).detail


def test_no_xid_in_a_log_that_nobody_reads_is_no_knowledge():
    assert measured("xids_failed", []).reason == Reason.ABSENT
    denied = measured("xids_failed", readings("xid_watch", [None], "n1"))
    assert (denied.value, denied.reason, "why" in denied.detail) == (None, Reason.BLANK, True)
    assert measured("xids_failed", [xid(79)]).value == 1


def test_an_event_that_driver_and_kernel_log_both_tell_is_one():
    rows = [*WATCH, xid(31, at_s=14), xid(31, at_s=15, text="MMU Fault")]
    assert (measured("xids_warned", rows).value, measured("xids_failed", rows).value) == (1, 0)
    again = [*rows, xid(31, at_s=16, text="MMU Fault")]
    assert measured("xids_failed", again).value == 2


def test_a_code_that_nobody_knows_leaves_it_open():
    found = measured("xids_failed", [*WATCH, xid(999)])
    assert (found.value, found.reason) == (None, Reason.UNSUPPORTED)
    assert "XID 999" in found.detail


def test_our_own_kill_is_left_out_and_hides_nothing():
    fault = FaultTimeline(kind="kill", entity="n1/gpu0", injected_ns=14 * SECOND, healed_ns=18 * SECOND)
    assert measured("xids_warned", [*WATCH, xid(45)], faults=(fault,)).value == 0
    assert measured("xids_failed", [*WATCH, xid(79)], faults=(fault,)).value == 1


@pytest.mark.parametrize("profile", ["signoff", "strict"])
def test_a_run_of_sign_off_is_stricter(profile):
    contained = [*WATCH, xid(94)]
    assert [measured("xids_failed", contained, profile=name).value for name in ("ci", profile)] == [0, 1]
    remapped = [*WATCH, *readings("row_remap_pending", [0]), xid(63, at_s=12), xid(63, at_s=14)]
    assert [measured("xids_failed", remapped, profile=name).value for name in ("ci", profile)] == [0, 2]


def test_a_remapped_row_that_waits_for_a_reset_fails():
    found = {
        pending: measured("xids_failed", [*WATCH, *readings("row_remap_pending", [pending]), xid(63)])
        for pending in (0, 1)
    }
    assert [one.value for one in found.values()] == [0, 1]
    unknown = measured("xids_failed", [*WATCH, xid(63)])
    assert (unknown.value, unknown.reason) == (None, Reason.UNSUPPORTED)


def test_what_comes_again_is_told_with_its_rate():
    text = "NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x004505c6 0x0)"
    found = measured("xids_warned", [*WATCH, *(xid(149, at_s=at, text=text) for at in (12, 13, 18))])
    assert (found.value, "2 s after the begin, 3 times: 1.08e+03 per hour" in found.detail) == (3, True)


def watch(*moments):
    """Looks at the kernel log: (second, reason of a look that gave nothing)."""
    return [
        Reading(round(at_s * SECOND), "n1", "n1", "xid_watch", None if why else 1.0, why or None, "why")
        for at_s, why in moments
    ]


@pytest.mark.parametrize("metric", ["xids_failed", "xids_warned", "kernel_events_failed"])
def test_a_log_speaks_for_a_load_that_it_was_read_after_and_from_which_nothing_was_lost(metric):
    assert measured(metric, watch((9, ""), (20.5, ""))).value == 0
    late = measured(metric, watch((9, ""), (17, "")))
    assert (late.reason, "not read in the last 3.0 s" in late.detail) == (Reason.STALE, True)
    lost = watch((9, ""), (14, Reason.INSTRUMENT), (15, ""), (20.5, ""))
    assert measured(metric, lost).reason == Reason.INSTRUMENT
    after = watch((9, ""), (20.2, Reason.INSTRUMENT), (20.5, ""))
    assert measured(metric, after).reason == Reason.INSTRUMENT
    before = watch((9, Reason.INSTRUMENT), (9.5, ""), (20.5, ""))
    assert measured(metric, before).value == 0
    unreachable_for_a_while = watch((9, ""), (14, Reason.UNREACHABLE), (18, ""), (20.5, ""))
    assert measured(metric, unreachable_for_a_while).value == 0
    gone = measured(metric, watch((9, ""), (14, Reason.UNREACHABLE), (20.5, Reason.UNREACHABLE)))
    assert gone.reason == Reason.UNREACHABLE


def kernel_event(kind, at_s=15, entity="n1", text="words"):
    return Reading(at_s * SECOND, "n1", entity, "kernel_event", float(KERNEL_EVENTS[kind]), None, text)


@pytest.mark.parametrize(
    ("kind", "failed", "warned"),
    [
        ("reboot", 1, 0),
        ("oom", 1, 0),
        ("api_mismatch", 1, 0),
        ("driver_not_bound", 1, 0),
        ("probe_failed", 1, 0),
        ("no_adapter", 1, 0),
        ("aer", 0, 1),
        ("edac", 0, 1),
        ("mlx5", 0, 1),
        ("nvrm", 0, 1),
        ("nouveau", 0, 1),
        ("lookalike", 0, 1),
    ],
)
@pytest.mark.parametrize("entity", ["n1", "n1/gpu2"])
def test_every_other_kernel_event_of_a_load_counts_for_its_node(kind, failed, warned, entity):
    rows = [*WATCH, kernel_event(kind, entity=entity), kernel_event(kind, at_s=5)]
    found = [measured(f"kernel_events_{name}", rows, "n1") for name in ("failed", "warned")]
    assert [one.value for one in found] == [failed, warned]
    assert "words" in found[warned].detail
    assert [f"kernel:{kind}"] == [one.key for one in found[warned].symptoms]
    assert measured("xids_failed", rows, "n1").value == 0


def test_every_metric_has_a_definition():
    assert all(function.__doc__ for _, function in METRICS.values())


def test_an_error_before_the_card_was_lost_is_a_failure_and_not_an_unknown():
    rows = readings("ecc_volatile_uncorrectable", [0, 0, 0, 2, None])
    assert measured("ecc_uncorrectable_growth", rows).value == 2
    clean = readings("ecc_volatile_uncorrectable", [0, 0, 0, 0, None])
    assert measured("ecc_uncorrectable_growth", clean).reason == Reason.BLANK


def test_power_of_the_moment_is_the_peak_where_a_card_tells_it():
    rows = [*readings("power_w", [650] * 5), *readings("power_limit_w", [700])]
    assert (
        measured("power_peak_share", [*rows, *readings("power_instant_w", [650, 650, 650, 980, 650])]).value
        == 1.4
    )


def test_rows_remapped_for_errors_that_were_corrected_do_not_speak_for_the_others():
    correctable = readings("remapped_rows_correctable", [0, 0, 0, 0])
    assert measured("remapped_rows_growth", correctable).reason == Reason.ABSENT
    both = [*correctable, *readings("remapped_rows_uncorrectable", [0, 0, 0, 1])]
    assert measured("remapped_rows_growth", both).value == 1


def test_a_counter_that_may_not_be_read_leaves_the_others_open_and_hides_none_of_their_errors():
    denied = [
        Reading(second * SECOND, "n1", "n1/gpu0", "nvlink_replays", None, Reason.NO_PERMISSION, "denied")
        for second in range(8, 21)
    ]
    clean, bad = (readings("nvlink_crc_errors", [0, 0, 0, count]) for count in (0, 3))
    assert measured("nvlink_error_growth", [*denied, *clean]).reason == Reason.NO_PERMISSION
    assert measured("nvlink_error_growth", [*denied, *bad]).value == 3
