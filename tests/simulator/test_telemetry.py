from __future__ import annotations

import threading

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rackgate.simulator.card_state import Slot, new_state, open_state
from rackgate.simulator.knobs import CardKnobs
from rackgate.simulator.node.card_sensors import CardSensors
from rackgate.simulator.rack import start_rack
from rackgate.simulator.settings import RackSettings

FIELDS = {
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_GPU_TEMP_LIMIT",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_PSTATE",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_ROW_REMAP_PENDING",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_PCIE_LINK_WIDTH",
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH",
    "DCGM_FI_DEV_PCIE_LINK_GEN",
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
}


def page(http, rack, node):
    text = http.get(rack.target.nodes[node].exporter_url).text
    return {
        (sample.name.removesuffix("_total"), sample.labels["gpu"]): sample  # the parser adds it
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def loaded(knobs, seconds, *, batch_share=1.0):
    """Return the sensors of a card that worked for so long."""
    state = open_state(new_state(1), 1)[0]
    sensors = CardSensors(knobs=knobs, state=state)
    for _ in range(int(seconds * 10)):
        state[Slot.BUSY_S] += 0.1
        state[Slot.WORK_S] += 0.1 * batch_share
        sensors.tick(0.1)
    return sensors


def test_each_card_has_every_field_with_the_labels_of_dcgm_exporter(http, rack):
    samples = page(http, rack, 0)
    assert {name for name, _ in samples} == FIELDS
    assert {gpu for _, gpu in samples} == {"0", "1"}
    labels = samples["DCGM_FI_DEV_GPU_TEMP", "1"].labels
    card = rack.target.cards[1]
    assert (labels["UUID"], labels["Hostname"], labels["device"]) == (card.uuid, "node1", "nvidia1")
    assert {"pci_bus_id", "modelName"} <= set(labels)


def test_power_and_energy_follow_the_load(http, rack, ask, wait_until):
    engine = rack.engines[2]
    before = page(http, rack, 1)["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "0"].value
    stop = threading.Event()

    def hold():
        body = ask(stream=True, max_tokens=5000, ignore_eos=True)
        with httpx.stream("POST", f"{engine.url}/v1/chat/completions", json=body, timeout=30) as answer:
            for _ in answer.iter_raw():
                if stop.is_set():
                    return

    clients = [threading.Thread(target=hold) for _ in range(4)]
    for client in clients:
        client.start()
    wait_until(lambda: page(http, rack, 1)["DCGM_FI_DEV_POWER_USAGE", "0"].value > 350)
    busy = page(http, rack, 1)
    stop.set()
    for client in clients:
        client.join(30)
    assert busy["DCGM_FI_DEV_GPU_UTIL", "0"].value > 50
    assert busy["DCGM_FI_DEV_POWER_USAGE", "1"].value < 200
    assert busy["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "0"].value > before


def test_a_healthy_card_settles_near_64_degrees_at_its_limit_of_700_watts():
    sensors = loaded(CardKnobs(), 10)
    fields = sensors.fields()
    assert fields["DCGM_FI_DEV_GPU_TEMP"] == 64
    assert round(fields["DCGM_FI_DEV_POWER_USAGE"]) == 700
    assert fields["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"] == 0x4
    assert fields["DCGM_FI_DEV_GPU_TEMP_LIMIT"] == 23


def test_a_card_whose_limit_does_not_work_draws_what_its_work_asks_for():
    fields = loaded(CardKnobs(power_limit_w=250.0, power_limit_works=False), 10).fields()
    assert round(fields["DCGM_FI_DEV_POWER_USAGE"]) == 760
    assert fields["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"] == 0


def test_bits_of_clock_events_stand_while_the_card_works_beside_counters_that_stand_still():
    fields = loaded(CardKnobs(clock_events=0x8, full_power_w=600.0), 10).fields()
    assert fields["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"] == 0x8
    assert fields["DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS"] == 0
    assert loaded(CardKnobs(clock_events=0x8), 0).fields()["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"] == 0x1


def test_an_idle_card_draws_90_watts_and_says_that_it_is_idle():
    fields = loaded(CardKnobs(), 0).fields()
    assert fields["DCGM_FI_DEV_POWER_USAGE"] == 90
    assert fields["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"] == 0x1


def test_a_badly_cooled_card_is_slowed_down_and_stays_above_90_degrees():
    sensors = loaded(CardKnobs(ambient_c=60.0, thermal_c_per_w=0.08), 10)
    fields = sensors.fields()
    assert fields["DCGM_FI_DEV_GPU_TEMP"] >= 90
    assert fields["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"] == 0x60
    assert sensors.state[Slot.CLOCK_FACTOR] == 0.6
    assert fields["DCGM_FI_DEV_SM_CLOCK"] == 1188


def test_a_throttled_card_recovers_when_the_load_ends():
    sensors = loaded(CardKnobs(ambient_c=60.0, thermal_c_per_w=0.08), 10)
    for _ in range(100):
        sensors.tick(0.1)
    assert sensors.state[Slot.CLOCK_FACTOR] == 1.0


def test_work_that_does_not_reach_the_card_leaves_it_idle():
    fields = loaded(CardKnobs(work_reaches_card=False), 10).fields()
    assert fields["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"] == 0x1
    assert fields["DCGM_FI_DEV_POWER_USAGE"] == 90


def test_health_counters_stand_still_unless_a_knob_lets_them_grow():
    knobs = CardKnobs(pcie_replays_per_busy_s=4.0, remapped_rows_per_busy_s=2.0)
    healthy, worn = loaded(CardKnobs(), 10), loaded(knobs, 10)
    assert healthy.fields()["DCGM_FI_DEV_PCIE_REPLAY_COUNTER"] == 0
    assert 39 <= worn.fields()["DCGM_FI_DEV_PCIE_REPLAY_COUNTER"] <= 40
    assert 19 <= worn.fields()["DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"] <= 20


def test_energy_is_the_integral_of_power():
    sensors = loaded(CardKnobs(), 60)
    assert sensors.energy_j == pytest.approx(700 * 60, rel=0.01)


def test_a_lost_card_has_no_series_while_its_engine_serves(http, ask):
    with start_rack(RackSettings(scenario="lost_card")) as rack:
        assert {gpu for _, gpu in page(http, rack, 1)} == {"0"}
        answer = http.post(f"{rack.engines[3].url}/v1/chat/completions", json=ask())
    assert answer.status_code == 200


def test_blank_telemetry_shows_sentinels_or_nothing(http):
    with start_rack(RackSettings(scenario="blank_telemetry")) as rack:
        samples = page(http, rack, 0)
    assert samples["DCGM_FI_DEV_GPU_TEMP", "1"].value == 0x7FFFFFFFFFFFFFF0
    assert samples["DCGM_FI_DEV_POWER_USAGE", "1"].value == 2**47
    assert ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "1") not in samples
    assert samples["DCGM_FI_DEV_GPU_TEMP", "0"].value < 100


def test_a_silent_exporter_refuses_connections(http):
    with start_rack(RackSettings(scenario="silent_exporter")) as rack:
        assert http.get(rack.target.nodes[0].exporter_url).status_code == 200
        with pytest.raises(httpx.ConnectError):
            http.get(rack.target.nodes[1].exporter_url)
