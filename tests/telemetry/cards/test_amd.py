"""Cards of AMD's by the page of its device-metrics-exporter, and the rows that are not asked of them."""

import pytest

from rackgate.checks.plan import plan_checks
from rackgate.config.target_file import parse_target
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.node import Card, Node
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.telemetry.cards.dcgm_exporter_page import listed_cards, pages_of, parse_page

METRICS = shipped_registry().metrics

NODE = Node(
    name="n1",
    cards=tuple(Card(name=f"n1/gpu{index}", node="n1", index=index) for index in range(2)),
)


def page(index=0, prefix="", **values):
    labels = f'card_model="MI300X",gpu_id="{index}",serial_number="6922{index}",hostname="n1"'
    told = {
        "gpu_junction_temperature": 61,
        "gpu_memory_temperature": 55,
        "gpu_package_power": 640,
        "gpu_power_usage": 1,
        "gpu_energy_consumed": 5_000_000,
        "gpu_gfx_activity": 97,
        "gpu_ecc_uncorrect_total": 2,
        "pcie_speed": 16,
        "pcie_max_speed": 32,
        "gpu_violation_processor_hot_residency_percentage": 0,
        "gpu_violation_ppt_residency_percentage": 0,
        **values,
    }
    lines = [f"{prefix}{name}{{{labels}}} {value}" for name, value in told.items() if value is not None]
    for kind, xcd, clock in (("SYSTEM", 0, 132), ("SYSTEM", 1, 2100), ("MEMORY", 0, 1300)):
        which = f'clock_type="GPU_CLOCK_TYPE_{kind}",clock_index="{xcd}"'
        lines.append(f"{prefix}gpu_clock{{{labels},{which}}} {clock}")
    return "\n".join(lines) + "\n"


def fields(text, card="n1/gpu0"):
    return {one.field: one.value for one in parse_page(text, NODE, 1) if one.entity == card}


@pytest.mark.parametrize("prefix", ["", "amd_"])
def test_a_page_of_amd_gives_our_fields(prefix):
    found = fields(page(prefix=prefix))
    assert found == {
        "temperature_c": 61.0,
        "memory_temperature_c": 55.0,
        "power_w": 640.0,
        "energy_j": 5.0,
        "sm_clock_mhz": 2100.0,
        "memory_clock_mhz": 1300.0,
        "utilisation_pct": 97.0,
        "ecc_volatile_uncorrectable": 2.0,
        "pcie_generation": 4.0,
        "pcie_generation_max": 5.0,
        "clock_event_reasons": 0.0,
    }


@pytest.mark.parametrize(
    ("values", "mask"),
    [
        ({"gpu_violation_processor_hot_residency_percentage": 3}, 0x40),
        ({"gpu_violation_hbm_thermal_residency_percentage": 1}, 0x40),
        ({"gpu_violation_ppt_residency_percentage": 50}, 0x4),
        ({"gpu_gfx_activity": 0}, 0x1),
    ],
)
def test_violations_are_clock_events_and_an_unused_card_is_idle(values, mask):
    assert fields(page(**values))["clock_event_reasons"] == mask


def test_a_card_that_tells_no_violations_has_unknown_clock_events():
    quiet = dict.fromkeys(
        ("gpu_violation_processor_hot_residency_percentage", "gpu_violation_ppt_residency_percentage")
    )
    assert fields(page(**quiet))["clock_event_reasons"] is None


def test_older_cards_tell_the_edge_and_the_average():
    older = page(
        gpu_junction_temperature=None,
        gpu_edge_temperature=44,
        gpu_package_power=None,
        gpu_average_package_power=300,
    )
    found = fields(older)
    assert (found["temperature_c"], found["power_w"]) == (44.0, 300.0)


def test_cards_are_listed_with_serial_and_model():
    (first, second) = listed_cards(pages_of(page(0) + page(1)))
    assert [(one.index, one.serial, one.name) for one in (first, second)] == [
        (0, "69220", "MI300X"),
        (1, "69221", "MI300X"),
    ]


def test_a_card_that_is_not_on_the_page_is_lost():
    assert fields(page(0), "n1/gpu1")["temperature_c"] is None


@pytest.mark.parametrize(
    ("metric", "scope"),
    [("row_remap_pending", Scope.CARD), ("host_driver", Scope.NODE), ("recovery_action", Scope.CARD)],
)
@pytest.mark.parametrize(("vendor", "asked"), [("amd", False), ("nvidia", True)])
def test_what_only_nvidia_has_is_declared_absent_on_other_cards(metric, scope, vendor, asked):
    document = {
        "target": {"name": "rack", "model": "m"},
        "node": [{"name": "n1", "cards": 1, "vendor": vendor, "telemetry": {"local": True}}],
        "engine": [{"name": "e", "launcher": "remote", "url": "http://h:1", "cards": ["n1/gpu0"]}],
    }
    target = parse_target(document, "rack.toml", {"remote": lambda _: []})
    row = Slo(
        id=f"preflight.{metric}",
        stage="preflight",
        metric=metric,
        statistic="value",
        op=Op.EQUAL,
        bound=0.0,
        unit="",
        scope=scope,
        source="test",
    )
    assert asked == all(
        not check.declared_absent for check in plan_checks(target, [row], metrics=METRICS, probes={})
    )
