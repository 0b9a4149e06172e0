import pytest

from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node
from rackgate.telemetry.cards.dcgm_exporter_page import parse_page
from rackgate.telemetry.cards.dcgm_names import NAMES
from rackgate.telemetry.reading import CARD_FIELDS, REQUIRED

CARD = Card(name="n1/gpu0", node="n1", index=0, uuid="GPU-A")
NODE = Node(name="n1", cards=(CARD,), exporter_url="http://127.0.0.1/metrics")
LABELS = '{gpu="0",UUID="GPU-A"}'


def read(*lines, node=NODE):
    return {one.field: one for one in parse_page("\n".join(lines) + "\n", node, 1)}


@pytest.mark.parametrize(
    ("old", "new", "field", "value"),
    [
        ("GPU_TEMP", "GPU_TEMP_CELSIUS", "temperature_c", 41),
        ("POWER_USAGE", "BOARD_POWER_WATTS", "power_w", 400),
        ("GPU_TEMP_LIMIT", "GPU_TEMP_MARGIN_CELSIUS", "temperature_margin_c", 46),
        ("ENFORCED_POWER_LIMIT", "BOARD_POWER_LIMIT_ENFORCED_WATTS", "power_limit_w", 700),
        ("PCIE_REPLAY_COUNTER", "PCIE_REPLAY_TOTAL", "pcie_replays", 2),
        ("UNCORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_UNCORRECTABLE_TOTAL", "remapped_rows_uncorrectable", 1),
        ("NVLINK_REPLAY_ERROR_COUNT_TOTAL", "NVLINK_REPLAY_ERROR_TOTAL", "nvlink_replays", 3),
        ("GET_GPU_RECOVERY_ACTION", "GPU_RECOVERY_ACTION", "recovery_action", 0),
        ("ECC_DBE_VOL_TOTAL", "ECC_DBE_VOL", "ecc_volatile_uncorrectable", 2),
        ("XID_ERRORS", "XID_ERROR", "last_xid", 31),
        ("PSTATE", "PSTATE", "performance_state", 8),
    ],
)
def test_the_old_and_the_new_name_of_a_field_are_one(old, new, field, value):
    for name in (old, new):
        assert read(f"DCGM_FI_DEV_{name}{LABELS} {value}")[field].value == value


def test_a_counter_named_total_is_known_though_the_parser_adds_the_suffix_again():
    name = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
    found = read(f"# TYPE {name} counter", f"{name}{LABELS} 2")
    assert found["ecc_volatile_uncorrectable"].value == 2


def test_units_are_ours():
    found = read(
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{LABELS} 5000", f"DCGM_FI_DEV_SM_CLOCK_HERTZ{LABELS} 1980000000"
    )
    assert (found["energy_j"].value, found["sm_clock_mhz"].value) == (5.0, pytest.approx(1980.0))


def test_a_state_that_the_driver_does_not_know_is_no_value():
    found = read(f"DCGM_FI_DEV_PSTATE{LABELS} 32")["performance_state"]
    assert (found.value, found.reason) == (None, Reason.BLANK)


def test_every_name_leads_to_a_field_of_ours():
    assert {field for field, _ in NAMES.values()} <= set(CARD_FIELDS)


def test_series_of_one_card_that_contradict_each_other_give_no_value():
    found = read(
        'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-A",pod="a"} 400',
        'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-A",pod="b"} 300',
    )
    assert (found["power_w"].value, found["power_w"].reason) == (None, Reason.INSTRUMENT)


def test_a_blank_says_so_and_a_denied_one_says_that():
    found = read(
        f"DCGM_FI_DEV_GPU_TEMP{LABELS} 2147483632", f"DCGM_FI_DEV_POWER_USAGE{LABELS} 140737488355331"
    )
    assert found["temperature_c"].reason == Reason.BLANK
    assert found["power_w"].reason == Reason.NO_PERMISSION


def test_a_card_that_is_gone_is_absent_even_if_another_has_its_index():
    found = read('DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-B"} 41')
    assert {one.reason for one in found.values()} == {Reason.ABSENT}
    assert set(found) == set(REQUIRED)


def test_a_card_without_a_declared_uuid_is_found_by_its_index():
    node = Node(name="n1", cards=(Card(name="n1/gpu0", node="n1", index=0),), exporter_url="http://x")
    assert read('DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-B"} 41', node=node)["temperature_c"].value == 41


def links(*values):
    return "".join(
        f'DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT{{gpu="0",UUID="GPU-A",nvlink="{number}"}} {value}\n'
        for number, value in enumerate(values)
    )


@pytest.mark.parametrize(
    ("page", "value"),
    [
        (links(1, 2, 0), 3.0),
        (links(1, 9223372036854775794), None),
        (links(1, 2) + 'DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{gpu="0",UUID="GPU-A"} 7\n', 7.0),
    ],
)
def test_what_is_told_of_each_link_is_summed_where_there_is_no_total(page, value):
    node = Node(name="n1", cards=(Card(name="n1/gpu0", node="n1", index=0, uuid="GPU-A"),))
    found = {one.field: one for one in parse_page(page, node, 0)}
    assert (value, value is None) == (found["nvlink_replays"].value, bool(found["nvlink_replays"].reason))
