from dataclasses import replace

import pytest
from local_server import Answer, serving

from rackgate.engines.metrics_page import metrics_url
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node, NodeAccess, Redfish
from rackgate.nouns.target import EngineSpec, Member, Target
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


@pytest.mark.parametrize(
    ("settings", "protocol", "metrics", "page"),
    [
        ({}, "openai", None, "http://h:8000/metrics"),
        ({"engine": "nim"}, "openai", None, "http://h:8000/v1/metrics"),
        ({"engine": "tensorrt-llm"}, "openai", None, "http://h:8000/prometheus/metrics"),
        ({}, "triton", None, "http://h:8002/metrics"),
        ({"engine": "triton"}, "triton", ":9002/m", "http://h:9002/m"),
        ({"engine": "vllm"}, "openai", "/own", "http://h:8000/own"),
        ({"engine": "vllm"}, "openai", "https://p:9/m", "https://p:9/m"),
        ({"engine": "vllm"}, "openai", "", None),
    ],
)
def test_an_engine_is_asked_where_its_kind_or_the_target_says(settings, protocol, metrics, page):
    spec = replace(
        target(url="http://h:8000").engines[0], settings=settings, protocol=protocol, metrics=metrics
    )
    assert page == metrics_url(spec)


def keyed(path):
    def answer(request):
        if request.headers.get("authorization") != "Bearer s3cret":
            return Answer(401)
        return Answer(200, "vllm:num_requests_running 3\n") if request.path == path else Answer(404)

    return answer


def test_a_page_that_wants_the_key_gets_it_and_no_other_host_does(monkeypatch):
    monkeypatch.setenv("RACK_KEY", "s3cret")
    with serving(keyed("/own")) as url, serving(keyed("/own")) as other:
        elsewhere = other.replace("127.0.0.1", "localhost")
        running = {}
        for name, metrics in (("own", "/own"), ("other", f"{elsewhere}/own")):
            rack = target(url=url)
            spec = replace(rack.engines[0], api_key_env="RACK_KEY", metrics=metrics)
            source = assemble(replace(rack, engines=(spec,)), TelemetryPlan())[-1]
            running[name] = {one.field: (one.value, one.reason) for one in source.poll()}
            source.close()
    assert (3.0, None) == running["own"]["requests_running"]
    assert (None, Reason.NO_PERMISSION) == running["other"]["requests_running"]


def test_a_prometheus_that_wants_a_key_gets_that_of_the_named_variable(monkeypatch):
    monkeypatch.setenv("PROMETHEUS_KEY", "s3cret")
    asked = []

    def answer(request):
        asked.append(request.headers.get("authorization"))
        return Answer(403)

    with serving(answer) as url:
        rack = replace(target(exporter_url=None), prometheus_url=url, prometheus_key_env="PROMETHEUS_KEY")
        source = assemble(replace(rack, engines=()), plan_of(rack))[0]
        readings = source.poll()
        source.close()
    assert {"Bearer s3cret"} == set(asked)
    assert {None} == {one.value for one in readings}


def test_a_node_without_an_exporter_is_read_from_prometheus_if_there_is_one():
    plan = TelemetryPlan(prometheus="http://127.0.0.1:9090", engine_metrics=False)
    assert names(plan, target(exporter_url=None)) == ["prometheus http://127.0.0.1:9090"]
    assert names(plan) == ["exporter n1"]


def test_an_engine_without_an_address_has_no_metrics_page_yet():
    assert names(TelemetryPlan(), target(url=None)) == ["exporter n1"]
