from dataclasses import replace

import pytest

from rackgate.target import Card, EngineSpec, Member, Node, NodeAccess, Redfish, Target
from rackgate.telemetry.assembly import TelemetryPlan, assemble, plan_of


def target(exporter_url="http://127.0.0.1:9400/metrics", url="http://127.0.0.1:8000"):
    node = Node(name="n1", cards=(Card(name="n1/gpu0", node="n1", index=0),), exporter_url=exporter_url)
    member = Member(node="n1", cards=("n1/gpu0",))
    engine = EngineSpec(name="e1", launcher="remote", model="m", url=url, members=(member,))
    return Target(name="rack", model="m", grade="accelerator", nodes=(node,), engines=(engine,))


def names(plan, rack=None):
    sources = assemble(rack or target(), plan)
    found = [source.name for source in sources]
    for source in sources:
        source.close()
    return found


def test_a_bare_rack_has_its_exporters_and_its_engines():
    assert names(TelemetryPlan()) == ["exporter n1", "engine metrics n1/gpu0"]


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        (NodeAccess(cards="nvml", local=True), ["nvml n1", "host n1", "kernel log n1"]),
        (NodeAccess(cards="nvidia-smi", ssh="n1"), ["nvidia-smi n1", "host n1", "kernel log n1"]),
        (NodeAccess(kernel_log="/var/log/kern.log"), ["exporter n1", "kernel log n1"]),
        (
            NodeAccess(redfish=Redfish(url="https://bmc", user_env="BMC_USER", password_env="BMC_PASSWORD")),
            ["exporter n1", "redfish n1"],
        ),
    ],
)
def test_a_node_is_asked_as_the_plan_allows(access, expected):
    assert names(TelemetryPlan(nodes={"n1": access}, engine_metrics=False)) == expected


def test_the_plan_is_what_the_target_declares(tmp_path):
    rack = replace(target(), prometheus_url="http://p:9090", ssh_config=str(tmp_path))
    access = NodeAccess(root=str(tmp_path))
    rack = replace(rack, nodes=(replace(rack.nodes[0], access=access),))
    plan = plan_of(rack)
    assert (plan.prometheus, plan.ssh_config, plan.access("n1")) == ("http://p:9090", tmp_path, access)


def test_a_node_without_an_exporter_is_read_from_prometheus_if_there_is_one():
    plan = TelemetryPlan(prometheus="http://127.0.0.1:9090", engine_metrics=False)
    assert names(plan, target(exporter_url=None)) == ["prometheus http://127.0.0.1:9090"]
    assert names(plan) == ["exporter n1"]


def test_an_engine_without_an_address_has_no_metrics_page_yet():
    assert names(TelemetryPlan(), target(url=None)) == ["exporter n1"]
