"""What is kept by hand beside the registration of a metric agrees with it; each exception has its reason."""

from rackgate.checks import applicability as host_rows
from rackgate.metrics import layers
from rackgate.metrics import probed as probes
from rackgate.metrics.inputs import alternatives
from rackgate.metrics.registry import Registry
from rackgate.metrics.shipped import register_metrics
from rackgate.preflight.host_metrics import HOST_STEPS
from rackgate.telemetry.cards.amd_names import AMD_NAMES

REGISTRY = Registry()
register_metrics(REGISTRY.add_metric)
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
    assert (alone - set(ASKED_OF_ALL)) | set(WITHOUT_ITS_INPUTS) == host_rows._NVIDIA


def test_the_triage_is_that_of_the_hosts_steps():
    assert {*HOST_STEPS, "host_warnings"} == set(host_rows._TRIAGE)


def test_tables_name_only_metrics_that_are_registered():
    for table in (probes._INPUTS, layers._BY_NAME, host_rows._NVIDIA, host_rows._DECLARATIONS):
        assert set() == set(table) - set(METRICS)


def test_what_a_target_must_declare_is_looked_for_in_rows_that_ask_the_host():
    assert [] == [name for name in host_rows._DECLARATIONS if not host_rows.asks_the_host(name)]


def test_a_layer_is_named_only_where_the_inputs_say_another():
    by_inputs = {name: layers.layer_of_inputs("", METRICS[name].inputs) for name in layers._BY_NAME}
    assert {} == {name: layer for name, layer in by_inputs.items() if layer == layers._BY_NAME[name]}


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
    assert asked == {name: host_rows.asks_the_host(name) for name in asked}
