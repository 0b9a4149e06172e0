import os
import time
from pathlib import Path

import pytest
from nvml_stand_in import StandIn, by_field, node_of, until

from rackgate.nouns.measurement import Reason
from rackgate.telemetry.cards.nvml_source import NvmlSource
from rackgate.telemetry.reading import CARD_FIELDS, REQUIRED
from rackgate.telemetry.sampler import Sampler

pytestmark = pytest.mark.slow


def test_every_field_comes_through_the_real_bindings(source):
    found = by_field(source.poll())
    assert set(CARD_FIELDS) - set(found) == {"last_xid"}
    values = {field: one.value for field, one in found.items()}
    assert {field for field, value in values.items() if value is None} == {
        *("fan_pct", "nvlink_crc_errors", "nvlink_replays", "nvlink_recoveries"),
    }
    expected = {
        "temperature_c": 41.0,
        "temperature_margin_c": 46.0,
        "memory_temperature_c": 55.0,
        "power_w": pytest.approx(412.1),
        "power_instant_w": pytest.approx(420.0),
        "power_limit_w": pytest.approx(700.0),
        "energy_j": pytest.approx(5000.0),
        "memory_used_mib": 100 * 1024.0,
        "memory_total_mib": 141 * 1024.0,
        "nvlinks_up": 18.0,
        "ecc_aggregate_correctable": 3.0,
        "remapped_rows_correctable": 1.0,
        "fabric_state": 3.0,
        "fabric_clique": 4026.0,
        "mig_enabled": 0.0,
        "sw_power_cap_ns": 1000.0,
    }
    assert expected == {field: values[field] for field in expected}


def test_the_inventory_names_each_card_and_the_driver(source):
    source.poll()
    assert source.driver == {"driver": "580.82.07", "library": "13.580.82.07", "cuda": "13.0"}
    assert source.facts[1]["pci"] == "0000:2b:00.0"
    assert source.facts[1]["serial"] == "1500000000001"
    assert source.facts[1]["board"] == "0x1b00"
    listed = source.listed()[1]
    assert (listed.ecc, listed.persistence) == ("Enabled", "Enabled")
    assert listed.fabric_domain == source.facts[0]["fabric"]
    assert source.facts[0]["fabric"] == "9c6f5af3-0000-4000-8000-000000000001/4026"


def test_a_passively_cooled_card_has_no_fan_and_every_other_value(source):
    found = by_field(source.poll())
    assert (found["fan_pct"].value, found["fan_pct"].reason) == (None, Reason.UNSUPPORTED)
    assert found["temperature_c"].value == 41.0


def test_a_change_of_the_state_is_seen_by_the_next_poll(stand_in, source):
    source.poll()
    stand_in.card(0, temperature=88, reasons=0x48)
    found = by_field(source.poll())
    assert (found["temperature_c"].value, found["clock_event_reasons"].value) == (88.0, 0x48)


def test_a_card_that_is_lost_in_mid_run_takes_only_its_own_fields(stand_in, source):
    source.poll()
    stand_in.card(1, lost=1)
    readings = source.poll()
    lost = by_field(readings, "n1/gpu1")
    assert {lost[field].reason for field in REQUIRED} == {Reason.DIED}
    assert "lost" in lost["temperature_c"].detail
    assert by_field(readings)["temperature_c"].value == 41.0


def test_a_card_without_a_handle_is_absent(stand_in):
    stand_in.card(1, handle=15)
    source = NvmlSource(node_of(2), environment=stand_in.environment)
    lost = by_field(source.poll(), "n1/gpu1")
    source.close()
    assert {one.reason for one in lost.values()} == {Reason.ABSENT}
    assert set(lost) == set(REQUIRED)


@pytest.mark.parametrize(
    ("code", "reason"), [(3, Reason.UNSUPPORTED), (4, Reason.NO_PERMISSION), (16, Reason.DIED)]
)
def test_a_refused_field_is_none_with_the_drivers_reason(stand_in, source, code, reason):
    stand_in.card(0, **{"power_mw!": code})
    found = by_field(source.poll())
    assert (found["power_w"].value, found["power_w"].reason) == (None, reason)
    assert found["temperature_c"].value == 41.0


def test_a_blank_counter_is_no_value(stand_in, source):
    stand_in.card(0, **{"field.82": 2**64 - 1})
    assert by_field(source.poll())["memory_temperature_c"].reason == Reason.BLANK


def test_an_old_driver_gives_what_it_has(tmp_path, old_library):
    stand_in = StandIn(tmp_path, old_library, 1)
    stand_in.card(0, reasons=0x4)
    source = NvmlSource(node_of(1), environment=stand_in.environment)
    found = by_field(source.poll())
    source.close()
    assert found["clock_event_reasons"].value == 4.0
    assert found["temperature_c"].value == 41.0
    assert found["energy_j"].value == pytest.approx(5000.0)
    assert found["temperature_margin_c"].value == 87 - 41  # from the threshold, as there is no margin
    assert found["hw_thermal_slowdown_ns"].reason == Reason.UNSUPPORTED
    assert found["fabric_state"].reason == Reason.UNSUPPORTED


def test_unified_memory_is_no_memory_of_the_cards_own(stand_in, source):
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    stand_in.card(0, memory_total=host, memory_used=host // 2)
    stand_in.card(1, **{"memory_total!": 3})
    readings = source.poll()
    for entity in ("n1/gpu0", "n1/gpu1"):
        used = by_field(readings, entity)["memory_used_mib"]
        assert (used.value, used.reason) == (None, Reason.UNSUPPORTED)
        assert "unified memory" in used.detail


def test_with_mig_on_utilisation_belongs_to_the_instances(stand_in, source):
    stand_in.card(0, mig=1, **{"utilisation!": 3})
    found = by_field(source.poll())
    assert found["mig_enabled"].value == 1.0
    assert "instances" in found["utilisation_pct"].detail


@pytest.mark.parametrize(
    ("code", "words"), [(9, "driver_not_loaded"), (18, "driver_library_mismatch"), (4, "/dev/nvidiactl")]
)
def test_a_driver_that_does_not_start_is_told_by_its_kind(stand_in, source, code, words):
    stand_in.set(init=code)
    readings = source.poll()
    assert {one.value for one in readings} == {None}
    assert words in readings[0].detail
    stand_in.set(init=0)
    assert by_field(source.poll())["temperature_c"].value == 41.0


def test_a_machine_without_the_library_says_so(tmp_path):
    source = NvmlSource(node_of(1), environment={"LD_LIBRARY_PATH": str(tmp_path)})
    readings = source.poll()
    source.close()
    if readings[0].value is not None:
        pytest.fail("this machine has a driver of its own: the test needs one without")
    assert readings[0].reason == Reason.TOOL_MISSING


def test_more_links_than_eighteen_are_counted(stand_in, source):
    stand_in.card(0, links=36)
    assert by_field(source.poll())["nvlinks_up"].value == 36.0


@pytest.mark.parametrize(
    ("refusal", "value", "reason"), [({}, 1.0, None), ({"events": 3}, None, "unsupported")]
)
def test_it_is_told_whether_the_driver_gives_xids_as_events(stand_in, refusal, value, reason):
    stand_in.set(**refusal)
    source = NvmlSource(node_of(1), environment=stand_in.environment)
    told = [one for one in source.poll() if one.field == "xid_events"]
    source.close()
    assert [("n1", value, reason)] == [(one.entity, one.value, one.reason) for one in told]


def test_an_xid_event_is_told_once_at_its_moment(stand_in, source):
    source.poll()
    before = time.perf_counter_ns()
    stand_in.xid(1, 79)
    seen = until(lambda: [one for one in source.poll() if one.field == "xid"])
    assert [(one.entity, one.value) for one in seen] == [("n1/gpu1", 79.0)]
    assert before < seen[0].t_ns <= time.perf_counter_ns()
    stand_in.xid(1, 79)
    assert len(until(lambda: [one for one in source.poll() if one.field == "xid"])) == 1


def test_a_driver_that_hangs_gives_a_reason_in_time_and_no_second_process(stand_in):
    source = NvmlSource(node_of(2), deadline_s=0.3, environment=stand_in.environment)
    assert source.poll()[0].value is not None
    stand_in.set(hang_ms=60_000)
    readings = source.poll()
    assert {one.reason for one in readings} == {Reason.TIMEOUT}
    assert "driver unresponsive" in readings[0].detail
    stand_in.set(hang_ms=0)
    until(lambda: source.poll()[0].value is not None)
    source.close()


def test_a_worker_that_is_killed_is_started_again(source):
    source.poll()
    os.kill(source._child.pid, 9)
    assert source.poll()[0].reason == Reason.DIED
    assert by_field(source.poll())["temperature_c"].value == 41.0


def test_a_hanging_driver_holds_up_no_other_source_of_the_sampler(stand_in, tmp_path):
    class Steady:
        name = "steady"
        polls = 0

        def poll(self):
            self.polls += 1
            return []

        def nothing(self, *_):
            return []

        def close(self):
            pass

    steady = Steady()
    slow = NvmlSource(node_of(2), deadline_s=5.0, environment=stand_in.environment)
    stand_in.set(hang_ms=60_000)
    sampler = Sampler([slow, steady], tmp_path / "parts", interval_s=0.05, timeout_s=0.2)
    begin = time.perf_counter_ns()
    sampler.start()
    until(lambda: steady.polls >= 10)
    until(lambda: sampler.window(begin, time.perf_counter_ns()).series("n1/gpu0", "temperature_c").reasons)
    stand_in.set(hang_ms=0)
    sampler.stop()
    slow.close()


def test_what_moves_at_once_comes_with_each_poll_and_the_rest_by_the_second(stand_in):
    source = NvmlSource(node_of(2), environment=stand_in.environment, slow_s=60.0, full_s=60.0)
    first, second = by_field(source.poll()), by_field(source.poll())
    source.close()
    assert {*REQUIRED} == {*second}
    assert {"energy_j", "memory_used_mib", "utilisation_pct", "power_limit_w"} <= {*first}
    again = NvmlSource(node_of(2), environment=stand_in.environment, slow_s=60.0, full_s=0.0)
    again.poll()
    found = by_field(again.poll())
    again.close()
    assert "energy_j" in found
    assert "power_limit_w" not in found


@pytest.fixture
def brief(stand_in):
    opened = NvmlSource(node_of(2), environment=stand_in.environment, slow_s=60.0, full_s=60.0)
    opened.poll()
    yield opened
    opened.close()


def test_each_card_keeps_its_own_values_in_a_short_look(stand_in, brief):
    stand_in.card(0, temperature=51, power_mw=300500, sm_clock=1410, reasons=0x4)
    stand_in.card(1, temperature=62, power_mw=99000, sm_clock=1980, reasons=0x100)
    readings = brief.poll()
    found = {
        entity: {field: one.value for field, one in by_field(readings, entity).items()}
        for entity in ("n1/gpu0", "n1/gpu1")
    }
    assert {
        "n1/gpu0": dict(zip(REQUIRED, (51.0, 300.5, 1410.0, 4.0), strict=True)),
        "n1/gpu1": dict(zip(REQUIRED, (62.0, 99.0, 1980.0, 256.0), strict=True)),
    } == found


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"power_mw": 2**32 - 1}, Reason.BLANK),
        ({"power_mw!": 4}, Reason.NO_PERMISSION),
        ({"lost": 1}, Reason.DIED),
    ],
)
def test_in_a_short_look_too_a_value_that_is_none_says_why_and_comes_again(stand_in, brief, change, reason):
    stand_in.card(1, **change)
    readings = brief.poll()
    assert (None, reason) == (
        by_field(readings, "n1/gpu1")["power_w"].value,
        by_field(readings, "n1/gpu1")["power_w"].reason,
    )
    assert by_field(readings)["power_w"].value == pytest.approx(412.1)
    stand_in.card(1, **(dict.fromkeys(change) | {"power_mw": 5000}))
    assert by_field(brief.poll(), "n1/gpu1")["power_w"].value == 5.0


def test_in_a_short_look_a_card_without_a_handle_stays_absent(stand_in):
    stand_in.card(0, handle=15)
    source = NvmlSource(node_of(2), environment=stand_in.environment, slow_s=60.0, full_s=60.0)
    for _ in range(2):
        readings = source.poll()
        assert {one.reason for one in by_field(readings).values()} == {Reason.ABSENT}
        assert by_field(readings, "n1/gpu1")["temperature_c"].value == 41.0
    source.close()


def test_an_xid_event_is_told_by_a_short_look_too(stand_in, brief):
    stand_in.xid(1, 79)
    seen = until(lambda: [one for one in brief.poll() if one.field == "xid"])
    assert [(one.entity, one.value) for one in seen] == [("n1/gpu1", 79.0)]


def cpu_ticks(pid):
    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(parts[11]) + int(parts[12])


def test_eight_cards_cost_little(tmp_path, library):
    stand_in = StandIn(tmp_path, library, 8)
    source = NvmlSource(node_of(8), environment=stand_in.environment)
    source.poll()
    pid, own = source._child.pid, time.process_time()
    before, polls = cpu_ticks(pid), 100
    for _ in range(polls):
        source.poll()
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    cost_s = ((cpu_ticks(pid) - before) * tick_s + time.process_time() - own) / polls
    source.close()
    print(f"{cost_s * 1e3:.2f} ms of CPU for a poll of 8 cards")
    assert cost_s < 0.05  # 5 % of a core at 1 Hz on a machine full of other work; see docs for the figure
