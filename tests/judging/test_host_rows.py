"""What is kept by hand beside the registration of a metric agrees with it; each exception has its reason."""

import pytest

from rackgate.checks import applicability as host_rows
from rackgate.checks.plan import plan_checks
from rackgate.metrics.inputs import alternatives
from rackgate.metrics.layers import layer_of_inputs
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.node import Node, NodeAccess
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.nouns.target import Target
from rackgate.preflight.host_metrics import host_metrics, of_group
from rackgate.telemetry.cards.amd_names import AMD_NAMES

REGISTRY = shipped_registry()
METRICS = REGISTRY.metrics

OF_AMD = {field for field, _factor in AMD_NAMES.values()} | {"clock_event_reasons", "pcie_generation"}
OF_NVIDIA = {
    *("driver_answer", "nvidia_loaded", "driver_module", "driver_library"),
    *("cuda", "nvlinks", "imex_domain"),
}
"""Facts of a host that NVIDIA's driver and tools tell."""

WITHOUT_ITS_INPUTS = {
    "host_runtime": "of any host, but about the runtime for NVIDIA's cards",
    "host_network": "of any host, but about NVIDIA's peer memory",
    "host_warnings": "sums up all steps of the triage",
    "cards_not_in_container": "runs nvidia-smi in the container",
    "last_xid_changes": "a gauge of NVIDIA's; the kernel log only explains it",
    "application_clocks_share": "a bit of the clock events that AMD's exporter has no word for",
}
"""NVIDIA's by what they do, though other cards tell what they are made from."""

ASKED_OF_ALL = {"power_cap_shortfall": "0 without a limit too, where no cap ever held the card"}
"""Asked of AMD's cards though their exporter does not tell every input."""


def _told_by_nvidia_alone(one):
    if one.kind == "card":
        return one.name != "" and one.name not in OF_AMD
    return one.kind == "host" and one.name in OF_NVIDIA


def test_what_only_nvidia_tells_is_not_asked_of_other_cards():
    alone = {
        name
        for name, metric in METRICS.items()
        if any(all(map(_told_by_nvidia_alone, alternatives(written))) for written in metric.inputs)
    }
    asked = {name for name, metric in METRICS.items() if metric.vendor == "nvidia"}
    assert (alone - set(ASKED_OF_ALL)) | set(WITHOUT_ITS_INPUTS) == asked


def test_the_triage_is_that_of_the_hosts_steps():
    assert {*of_group("triage"), "host_warnings"} == set(host_rows._TRIAGE)


def test_what_a_target_must_declare_is_looked_for_in_rows_that_ask_the_host():
    assert [] == [name for name in host_rows._DECLARATIONS if not host_rows.asks_the_host(METRICS[name])]


def test_a_layer_is_named_only_where_the_inputs_say_another():
    named = {name: metric.layer for name, metric in host_metrics().items() if metric.layer}
    assert {} == {
        name: layer for name, layer in named.items() if layer == layer_of_inputs(METRICS[name].inputs)
    }


def test_a_metric_asks_the_host_where_nothing_else_can_answer():
    asked = {
        "chassis_findings": True,
        "clock_offset_s": True,
        "xids_in_run": True,
        "cards_not_in_container": True,
        "recovery_action": False,  # the card's own source may tell it
        "temperature_c": False,
        "no_such_metric": False,
    }
    assert asked == {name: host_rows.asks_the_host(METRICS.get(name)) for name in asked}


@pytest.mark.parametrize(("opened", "declared"), [(False, True), (True, False)])
def test_a_sites_own_metric_of_a_host_is_asked_only_where_the_target_opens_the_host(opened, declared):
    registry = shipped_registry()
    registry.add_metric("doors_open", "doors", lambda *_: None, statistics=("value",), inputs=("host",))
    row = Slo(id="preflight.doors", stage="preflight", metric="doors_open", statistic="value", op=Op.AT_MOST,
              bound=0, unit="doors", scope=Scope.NODE, source="site rule 7")  # fmt: skip
    node = Node(name="node1", access=NodeAccess(local=opened))
    target = Target(name="t", model="m", grade="cpu", nodes=(node,))
    (check,) = plan_checks(target, [row], metrics=registry.metrics, probes={})
    assert declared == ("no way into the host of node1" in check.declared_absent)
