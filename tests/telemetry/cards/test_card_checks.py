import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.nouns.measurement import Reason
from rackgate.telemetry.card_checks import (
    busy_median,
    cap_shortfall,
    clock_events,
    clock_symptoms,
    deviation_from_peers,
    idle_share,
    peak_share_of_limit,
    share_of_limit,
    slowest_state,
    standing_share,
    throttle_by_counters_s,
)
from rackgate.telemetry.cards.clock_events import FAULT_BITS
from rackgate.telemetry.reading import Reading
from rackgate.telemetry.table import Series, TelemetryTable
from rackgate.telemetry.window_findings import growth, highest, least, mean_over, most_per_minute

SECOND = 1_000_000_000


def series(values, start=0):
    moments = np.arange(start, start + len(values), dtype=np.int64) * SECOND
    numbers = np.array([np.nan if one is None else one for one in values], dtype=float)
    reasons = tuple((Reason.BLANK, "blank") for one in values if one is None)
    return Series(moments, numbers, reasons)


def test_a_counter_grows_from_the_last_sample_before_the_window():
    assert growth(series([5, 5, 7, 9, 20]), 1 * SECOND, 3 * SECOND).value == 4.0


def test_a_counter_that_was_reset_counts_anew():
    found = growth(series([100, 104, 1, 3]), 0, 3 * SECOND)
    assert (found.value, found.detail) == (7.0, "100 -> 3, 1 resets")


def test_a_counter_that_was_never_read_is_not_zero():
    found = growth(series([None, None]), 0, 3 * SECOND)
    assert (found.value, found.reason) == (None, Reason.BLANK)


def test_a_card_that_was_lost_before_the_end_is_no_finding():
    assert growth(series([5, 5, 5, None]), 0, 3 * SECOND).reason == Reason.BLANK
    assert highest(series([5, 5, 5, None]), 0, 3 * SECOND).reason == Reason.BLANK
    assert idle_share(series([0, None, None, 0]), 0, 3 * SECOND).reason == Reason.BLANK
    assert growth(series([5, 5]), 0, 30 * SECOND).reason == Reason.STALE


def test_clock_bits_are_a_symptom_by_their_mask_and_idleness_too():
    seen = series([0x1, 0x48, 0x4, 0x100])
    (symptom,) = clock_symptoms(seen, 0, 3 * SECOND, FAULT_BITS)
    assert (symptom.key, symptom.seen) == (
        "clock:0x48",
        "hw_slowdown, hw_thermal_slowdown seen (bits 0x48)",
    )
    assert clock_symptoms(series([0x4]), 0, SECOND, FAULT_BITS) == ()
    assert [one.key for one in idle_share(seen, 0, 3 * SECOND).symptoms] == ["clock:0x1"]
    assert idle_share(series([0, 0]), 0, SECOND).symptoms == ()


def test_a_counter_of_the_driver_that_grew_is_the_symptom_of_its_bit():
    grew = {"sw_thermal_slowdown_ns": 0, "hw_thermal_slowdown_ns": 5, "hw_power_brake_ns": 7}
    rows = [
        Reading(second * SECOND, "n1", "n1/gpu0", name, float(second * growing))
        for name, growing in grew.items()
        for second in range(4)
    ]
    table = TelemetryTable.from_readings(rows)
    (symptom,) = throttle_by_counters_s(table, "n1/gpu0", 0, 3 * SECOND).symptoms
    assert symptom.key == "clock:0xc0"


def test_what_was_over_a_limit_before_the_samples_ended_is_kept_as_partial():
    found = growth(series([5, 9, None]), 0, 2 * SECOND)
    assert (found.value, found.partial) == (None, 4.0)
    assert least(series([5, 1, None]), 0, 2 * SECOND).partial == 1.0


def test_one_sample_of_a_counter_shows_no_growth():
    assert growth(series([7]), 0, 3 * SECOND).reason == Reason.TOO_FEW


def test_a_short_load_between_two_samples_of_a_slow_counter_has_its_growth():
    kept = Series(np.array([0, 5, 6]) * SECOND, np.array([7.0, 9.0, 20.0]), ())
    assert growth(kept, 2 * SECOND, 4 * SECOND).value == 2.0


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=30))
def test_growth_without_a_reset_is_the_difference(steps):
    counter = np.cumsum(steps).tolist()
    assert growth(series(counter), 0, len(counter) * SECOND).value == counter[-1] - counter[0]


def minutes(*points):
    moments, values = zip(*points, strict=True)
    return Series(np.array(moments) * SECOND, np.array(values, dtype=float), ())


def test_the_worst_minute_counts_and_not_the_whole_load():
    slow = minutes(*((second, second // 3) for second in range(0, 600, 5)))  # 20 a minute
    assert growth(slow, 0, 595 * SECOND).value == 198.0
    assert most_per_minute(slow, 0, 595 * SECOND).value <= 21
    burst = minutes((0, 0), (300, 0), (310, 25), (340, 50), (345, 50), (600, 50))
    assert most_per_minute(burst, 0, 600 * SECOND).value == 50.0


def test_a_load_shorter_than_a_minute_is_not_stretched_to_one():
    assert most_per_minute(minutes((0, 5), (1, 5), (2, 7)), 0, 2 * SECOND).value == 2.0


def test_what_came_between_samples_that_are_minutes_apart_came_evenly():
    assert most_per_minute(minutes((0, 0), (240, 80), (244, 80)), 0, 244 * SECOND).value == 20.0


def test_a_minute_of_a_counter_that_was_lost_is_kept_as_partial():
    found = most_per_minute(series([0, 40, None]), 0, 2 * SECOND)
    assert (found.value, found.partial, found.reason) == (None, 40.0, Reason.BLANK)
    assert most_per_minute(series([None]), 0, SECOND).reason == Reason.BLANK


@given(st.lists(st.integers(0, 9), min_size=2, max_size=200))
def test_no_minute_has_more_than_the_load(steps):
    counter = np.cumsum(steps).tolist()
    end = len(counter) * SECOND
    most, whole = most_per_minute(series(counter), 0, end).value, growth(series(counter), 0, end).value
    assert 0 <= most <= whole
    assert len(counter) > 61 or most == whole


def rows(**fields):
    return TelemetryTable.from_readings(
        Reading(second * SECOND, "n1", "n1/gpu0", field, value, None if value is not None else Reason.BLANK)
        for field, values in fields.items()
        for second, value in enumerate(values)
    )


def test_throttle_time_by_counters_adds_the_faults_and_leaves_the_power_cap_out():
    table = rows(
        sw_power_cap_ns=[0, 9e9, 9e9],
        sw_thermal_slowdown_ns=[0, 0, 0],
        hw_thermal_slowdown_ns=[1e9, 1.1e9, 1.15e9],
        hw_power_brake_ns=[0, 0, 0.02e9],
    )
    found = throttle_by_counters_s(table, "n1/gpu0", 0, 3 * SECOND)
    assert found.value == pytest.approx(0.17)
    assert found.detail == "hw_thermal_slowdown 0.150 s, hw_power_brake 0.020 s"


def test_throttle_time_is_unknown_if_one_counter_is():
    table = rows(sw_thermal_slowdown_ns=[0, 0], hw_thermal_slowdown_ns=[None, None], hw_power_brake_ns=[0, 0])
    found = throttle_by_counters_s(table, "n1/gpu0", 0, 3 * SECOND)
    assert (found.value, found.reason) == (None, Reason.BLANK)


def test_a_card_that_no_load_reached_is_idle():
    assert idle_share(series([1, 1, 1, 0]), 0, 3 * SECOND).value == 0.75
    assert idle_share(series([0x4, 0x5]), 0, 3 * SECOND).value == 0.5
    assert idle_share(series([]), 0, SECOND).reason == Reason.ABSENT


def test_clock_events_are_named_by_bit():
    assert clock_events(series([0, 0x48, 0x4]), 0, 3 * SECOND) == (
        "sw_power_cap",
        "hw_slowdown",
        "hw_thermal_slowdown",
    )


def test_the_worst_of_a_margin_is_the_least():
    assert (least(series([9, 4, 7]), 0, 3 * SECOND).value, highest(series([9, 4]), 0, 3 * SECOND).value) == (
        4,
        9,
    )
    assert least(series([9, 4, 7]), 2 * SECOND, 3 * SECOND).value == 7


def test_power_is_a_share_of_the_limit():
    assert share_of_limit(series([680, 690, 700]), series([700]), 0, 3 * SECOND).value == pytest.approx(
        690 / 700
    )
    assert share_of_limit(series([680]), series([None]), 0, 3 * SECOND).reason == Reason.BLANK


def test_the_peak_of_power_is_a_share_of_the_limit_and_a_gap_leaves_it_open():
    assert peak_share_of_limit(series([600, 910, 650]), series([700]), 0, 3 * SECOND).value == 1.3
    lost = peak_share_of_limit(series([600, 910, None]), series([700]), 0, 2 * SECOND)
    assert (lost.value, lost.partial, lost.reason) == (None, 1.3, Reason.BLANK)
    assert peak_share_of_limit(series([600]), series([None]), 0, SECOND).reason == Reason.BLANK
    assert peak_share_of_limit(series([None]), series([700]), 0, SECOND).reason == Reason.BLANK


def test_a_bit_stands_in_a_share_of_the_samples():
    found = standing_share(series([0, 2, 6, 4]), 0, 3 * SECOND, 0x2)
    assert (found.value, found.detail) == (0.5, "application_clocks in 50% of the samples")


def capped(watts, masks, limit=700, **facts):
    return cap_shortfall(series(watts), series(masks), series([limit]), 0, (len(masks) - 1) * SECOND, **facts)


def test_a_cap_at_the_limit_is_benign_and_one_below_it_is_a_shortfall():
    assert capped([700] * 5, [4] * 5).value == 0.0
    assert capped([350] * 5, [4] * 5).value == 0.5
    assert capped([350] * 5, [4] * 5).detail == "350 W of 700 W in 4 samples in which its power cap holds it"
    assert capped([350] * 5, [0] * 5).value == 0.0


def test_a_cap_of_a_single_sample_says_nothing_of_a_mean_power():
    assert capped([350] * 5, [0, 4, 0, 4, 0]).value == 0.0


def test_a_cap_below_the_limit_of_the_peers_was_set_too_low():
    assert capped([500] * 5, [4] * 5, limit=500).value == 0.0
    assert capped([500] * 5, [4] * 5, limit=500, least_limit_w=1000.0).value == 0.5


def test_a_cap_that_nobody_can_see_is_unknown():
    assert capped([350] * 3, [None] * 3).reason == Reason.BLANK
    assert capped([None] * 3, [4] * 3).reason == Reason.BLANK
    assert capped([350] * 3, [4] * 3, limit=None).reason == Reason.BLANK


def test_the_clock_of_a_card_is_that_of_its_busy_samples():
    clocks, masks = series([1980, 345, 345, 345, 1900]), series([0, 1, 1, 1, 4])
    assert busy_median(clocks, masks, 0, 4 * SECOND).value == 1940.0
    assert busy_median(clocks, series([]), 0, 4 * SECOND).value == 345.0
    assert busy_median(clocks, series([1] * 5), 0, 4 * SECOND).reason == Reason.ABSENT
    assert busy_median(series([None]), masks, 0, SECOND).reason == Reason.BLANK
    assert mean_over(series([1, 2, 6]), 0, 2 * SECOND).value == 3.0
    assert mean_over(series([1, 2, None]), 0, 2 * SECOND).reason == Reason.BLANK


def test_the_slowest_state_is_that_of_a_busy_sample():
    states, masks = series([8, 8, 0, 2, 0, 12]), series([1, 1, 0, 4, 0, 1])
    found = slowest_state(states, masks, 0, 5 * SECOND)
    assert (found.value, found.count, found.detail) == (2.0, 3, "P2 in 1 of 3 samples")
    assert slowest_state(states, masks, 4 * SECOND, 5 * SECOND).value == 0.0
    assert slowest_state(states, series([1] * 6), 0, 5 * SECOND).reason == Reason.ABSENT
    assert slowest_state(series([0, None]), masks, 0, SECOND).reason == Reason.BLANK


def test_the_card_unlike_its_peers_stands_out():
    found = deviation_from_peers({"a": 60.0, "b": 61.0, "c": 62.0, "d": 75.0, "e": None})
    assert found["d"].value == 14.0
    assert found["e"].reason == Reason.ABSENT
    assert deviation_from_peers({"a": 1.0, "b": 2.0})["a"].reason == Reason.TOO_FEW
