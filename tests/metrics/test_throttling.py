"""Time in clock events that are faults: by counters, by bits, and by the bit that has no counter."""

from dataclasses import replace

import pytest

from rackgate.judging.judge import judge
from rackgate.metrics.hardware import card_signals as hardware
from rackgate.nouns.measurement import Reason
from rackgate.nouns.verdict import Verdict
from rackgate.telemetry.reading import Reading
from rackgate.telemetry.table import TelemetryTable

SECOND = 1_000_000_000
CARD = "node1/gpu0"
COUNTERS = ("sw_thermal_slowdown_ns", "hw_thermal_slowdown_ns", "hw_power_brake_ns")


def readings(field, values):
    return [
        Reading(
            second * SECOND, "node1", CARD, field, value, None if value is not None else Reason.BLANK, "why"
        )
        for second, value in enumerate(values)
    ]


@pytest.fixture
def judged(seen, request_of, check_of):
    """Judge the throttle time of a load from second 1 to second 9, of a mask and three counters (s)."""

    def judged(masks, **counters):
        rows = readings("clock_event_reasons", masks)
        for name in COUNTERS:
            seconds = counters.get(name, [0.0] * 11)
            rows += readings(name, [None if one is None else one * 1e9 for one in seconds])
        load = seen([request_of(number, ttft_ms=10.0) for number in range(1, 10)])
        check = check_of("throttle_time_s", "s", bound=0.1)
        measured = hardware.throttle_time(
            replace(load, telemetry=TelemetryTable.from_readings(rows)), check.slo, CARD
        )
        return judge(check, measured), measured

    return judged


def test_hardware_that_slows_a_card_for_a_reason_without_a_counter_fails_though_all_counters_stand_still(
    judged,
):
    verdict, measured = judged([0x8] * 11)
    assert (Verdict.FAIL, pytest.approx(8.0, abs=0.1)) == (verdict.verdict, measured.value)
    assert "hw_slowdown that no counter has 8.0" in measured.detail


@pytest.mark.parametrize("mask", [0x0, 0x1, 0x4, 0x12, 0x48, 0x88, 0x40, 0x20])
def test_a_bit_that_a_counter_has_is_counted_by_it_alone(judged, mask):
    verdict, measured = judged([mask] * 11)
    assert (Verdict.PASS, 0.0) == (verdict.verdict, measured.value)


def test_counters_and_the_bit_without_one_add_up(judged):
    slowed = [0.0] * 5 + [0.5] * 6
    _, measured = judged([0, 0, 0, 0x8, 0x8, 0x48, 0, 0, 0, 0, 0], hw_thermal_slowdown_ns=slowed)
    assert pytest.approx(2.5) == measured.value


def test_without_the_bits_counters_that_stand_still_leave_it_open(judged):
    verdict, measured = judged([None] * 11)
    assert (Verdict.UNKNOWN, Reason.BLANK) == (verdict.verdict, measured.reason)


def test_without_the_bits_counters_that_grew_are_enough_to_fail(judged):
    verdict, measured = judged([None] * 11, hw_power_brake_ns=[0.0] * 4 + [0.7] * 7)
    assert (Verdict.FAIL, pytest.approx(0.7)) == (verdict.verdict, measured.value)


def test_without_counters_the_bits_are_enough(judged):
    silent = dict.fromkeys(COUNTERS, [None] * 11)
    assert Verdict.FAIL == judged([0, 0, 0, 0x48, 0, 0, 0, 0, 0, 0, 0], **silent)[0].verdict
    assert Verdict.PASS == judged([0x4] * 11, **silent)[0].verdict
    assert Verdict.UNKNOWN == judged([0] * 5 + [None] * 6, **silent)[0].verdict
