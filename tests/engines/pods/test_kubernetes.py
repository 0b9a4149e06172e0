import importlib.util
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rackgate.cli import main
from rackgate.engines.launch_records import owner_labels
from rackgate.engines.launchers import settings_checkers
from rackgate.engines.launchers.pods import engine as engine_pod
from rackgate.engines.launchers.pods.cluster import in_cluster
from rackgate.engines.launchers.pods.launcher import kubernetes
from rackgate.engines.launchers.pods.manifests import (
    PodPlan,
    deployment_of,
    label_value,
    secret_of,
    service_of,
)
from rackgate.engines.launchers.remote import remote
from rackgate.engines.probe import probe_engine
from rackgate.nouns.engine import Killable, LaunchFailed
from rackgate.nouns.target import EngineSpec, Member

pytestmark = pytest.mark.slow

_SPEC = importlib.util.spec_from_file_location("fake_cluster", Path(__file__).parent / "fake_cluster.py")
fake_cluster = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(fake_cluster)
FakeCluster = fake_cluster.FakeCluster
KEY = "ngc-key-value-0123456789"
PLAN = PodPlan(
    name="rackgate-e-1",
    namespace="rack",
    labels={"rackgate.io/launch": "1"},
    annotations={"rackgate.io/engine": "e"},
    image="registry.example/vllm:1",
    pull="missing",
    port=8000,
    health_path="/health",
    arguments=("--model", "/models/m"),
    environment={"A": "1"},
    secrets={"HF_TOKEN": KEY},
    gpus=2,
    node_name="node-a",
    node_selector={"rack": "r1"},
    tolerations=({"key": "under-test", "operator": "Exists", "effect": "NoSchedule"},),
    pull_secret="registry",
    runtime_class="nvidia",
    memory="64Gi",
    cpu="8",
    claims={"models": "/models"},
    shm_bytes=2**34,
)


@pytest.fixture(autouse=True)
def from_outside(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.fixture
def launch(tmp_path):
    told = []

    def start(cluster, model="tiny", cards=(), **settings):
        spec = EngineSpec(
            name="Node1 GPU0",
            launcher="kubernetes",
            model=model,
            members=(Member(node="n1", cards=tuple(cards)),) if cards else (),
            settings={
                "image": "registry.example/engine:1",
                "kubeconfig": cluster.kubeconfig(tmp_path / "kubeconfig"),
                "ready_timeout_s": 60,
                "stop_timeout_s": 1,
                **settings,
            },
        )
        return kubernetes(
            spec, run_id="2026-11-30T10:00:00Z smoke", log_dir=str(tmp_path), on_progress=told.append
        )

    start.told = told
    return start


def failure(launch, cluster, **settings):
    start = time.monotonic()
    with cluster, pytest.raises(LaunchFailed) as failed, launch(cluster, **settings):
        pytest.fail("it came up")
    assert time.monotonic() - start < 60
    assert cluster.kinds() == []
    return failed.value


def test_an_engine_in_a_pod_is_yielded_after_a_token_and_its_objects_are_gone_afterwards(launch, tmp_path):
    with FakeCluster() as cluster:
        with launch(cluster) as engine:
            assert engine.url == f"http://127.0.0.1:{cluster.node_port}"
            assert engine.image_digest == "sha256:" + "a" * 64
            assert cluster.kinds() == ["deployments", "services"]
            assert {token for _, _, token in cluster.requests} == {"Bearer cluster-token"}
        assert cluster.kinds() == []
    log = (tmp_path / "Node1 GPU0.log").read_text()
    assert log.startswith("event Normal Pulled: image there\n")
    assert "INFO loading" in log


def test_a_killed_pod_stays_away_until_it_is_started_again(launch, until):
    with FakeCluster() as cluster, launch(cluster) as engine:
        assert isinstance(engine.handle, Killable)
        engine.handle.kill()
        until(lambda: not engine.handle.alive())
        engine.handle.restart()
        until(lambda: probe_engine(engine.url, "tiny", {}, deadline_s=5).ok)
        assert engine.handle.alive()


def test_a_secret_is_an_object_that_the_pod_refers_to(launch, monkeypatch, tmp_path):
    monkeypatch.setenv("NGC_API_KEY", KEY)
    with FakeCluster(log=f"using {KEY}\n".encode()) as cluster, launch(cluster, env_from=["NGC_API_KEY"]):
        assert KEY not in json.dumps(cluster.manifest("deployments"))
        assert cluster.kinds() == ["deployments", "secrets", "services"]
    assert KEY not in (tmp_path / "Node1 GPU0.log").read_text()
    assert cluster.kinds() == []


def test_a_catalogue_engine_brings_its_command_port_and_probe(launch):
    with (
        FakeCluster() as cluster,
        launch(cluster, engine="vllm", context_tokens=4096, cards=["n1/gpu0", "n1/gpu1"]),
    ):
        (container,) = cluster.manifest("deployments")["spec"]["template"]["spec"]["containers"]
    assert container["args"][-4:] == ["--tensor-parallel-size", "2", "--max-model-len", "4096"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert container["imagePullPolicy"] == "Never"


FAILURES = {
    "crash": (
        FakeCluster,
        {"script": fake_cluster.CRASHED, "log": b"torch.OutOfMemoryError: CUDA out of memory\n"},
        "ended with exit code 1 after",
        "engine_out_of_memory",
    ),
    "oom": (
        FakeCluster,
        {"script": fake_cluster.OUT_OF_MEMORY},
        "exit code 137 (OOMKilled)",
        "host_out_of_memory",
    ),
    "never-pulled": (
        FakeCluster,
        {"script": fake_cluster.NEVER_PULLED},
        "ErrImageNeverPull",
        "image_not_on_node",
    ),
    "refused": (
        FakeCluster,
        {"deployment": fake_cluster.REFUSED, "script": {}},
        "violates PodSecurity",
        "pod_security",
    ),
    "forbidden": (FakeCluster, {"forbidden": True}, "403 deployments.apps is forbidden", None),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_keeps_a_pod_from_serving_ends_the_wait_at_once_with_its_words(launch, name):
    make, options, words, signature = FAILURES[name]
    failed = failure(launch, make(**options), ready_timeout_s=600)
    assert words in str(failed)
    assert (failed.explanation.name if failed.explanation else None) == signature


def test_a_pod_that_finds_no_card_is_given_up_after_a_while(launch, monkeypatch):
    monkeypatch.setattr(engine_pod, "_SCHEDULE_LIMIT_S", 0.5)
    failed = failure(launch, FakeCluster(fake_cluster.UNSCHEDULABLE), ready_timeout_s=600)
    assert "3 Insufficient nvidia.com/gpu" in str(failed)
    assert (failed.explanation.name, failed.explanation.cause) == ("no_free_card", "environment")
    assert "enough nvidia.com/gpu free" in failed.hint


def test_a_cluster_address_is_never_replaced_by_a_port_forward(launch):
    failed = failure(launch, FakeCluster(), service="ClusterIP")
    assert "a port-forward's latency would be UNKNOWN by rule" in str(failed)


def test_a_missing_kubeconfig_is_told(launch, tmp_path):
    with FakeCluster() as cluster:
        failed = failure(launch, cluster, kubeconfig=str(tmp_path / "none"))
    assert "no usable kubeconfig" in str(failed)


def test_a_server_that_does_not_answer_is_told(launch):
    cluster = FakeCluster()
    cluster.server.shutdown()
    cluster.server.server_close()
    with pytest.raises(LaunchFailed, match="the API server does not answer"), launch(cluster):
        pytest.fail("it came up")


def _unknown_keys(value, model, path=""):
    """Return the keys of a manifest that the client's model of that object does not have."""
    from kubernetes.client import models

    if isinstance(value, list):
        inner = model.removeprefix("list[").removesuffix("]")
        return [bad for item in value for bad in _unknown_keys(item, inner, f"{path}[]")]
    kind = getattr(models, model, None)
    if not isinstance(value, dict) or kind is None:
        return []
    names = {outside: inside for inside, outside in kind.attribute_map.items()}
    found = [f"{path}.{key}" for key in value if key not in names]
    for key, item in value.items():
        if key in names:
            found += _unknown_keys(item, kind.openapi_types[names[key]], f"{path}.{key}")
    return found


def test_the_manifests_hold_only_fields_that_the_api_has():
    assert _unknown_keys(deployment_of(PLAN), "V1Deployment") == []
    assert _unknown_keys(service_of(PLAN), "V1Service") == []
    assert _unknown_keys(secret_of(PLAN), "V1Secret") == []
    assert _unknown_keys({"metdata": {}, "spec": {"template": {"spec": {"x": 1}}}}, "V1Deployment") == [
        ".metdata",
        ".spec.template.spec.x",
    ]


@pytest.mark.parametrize("script", ["run", "CRASHED", "OUT_OF_MEMORY", "NEVER_PULLED", "UNSCHEDULABLE"])
def test_what_the_stand_in_answers_is_what_the_official_client_takes(tmp_path, script):
    """The client's own models read every answer, and refuse one that lacks what the API always has."""
    from kubernetes import client, config

    with FakeCluster(getattr(fake_cluster, script, script)) as cluster:
        api = config.new_client_from_config(config_file=cluster.kubeconfig(tmp_path / "kubeconfig"))
        core, apps, place = client.CoreV1Api(api), client.AppsV1Api(api), {"namespace": "rack"}
        made = [
            core.create_namespaced_secret(**place, body=secret_of(PLAN)),
            core.create_namespaced_service(**place, body=service_of(PLAN)),
            apps.create_namespaced_deployment(**place, body=deployment_of(PLAN)),
            apps.read_namespaced_deployment(**place, name=PLAN.name),
            core.list_namespaced_service(**place).items[0],
            core.list_namespaced_event(**place, field_selector=f"involvedObject.name={PLAN.name}").items[0],
            core.list_namespaced_pod(**place, label_selector="rackgate.io/launch=1").items[0],
            apps.patch_namespaced_deployment_scale(**place, name=PLAN.name, body={"spec": {"replicas": 0}}),
        ]
        if script != "run":
            made.append(core.delete_namespaced_pod(**place, name="pod-0"))
        made += [
            apps.delete_namespaced_deployment(**place, name=PLAN.name),
            core.delete_namespaced_service(**place, name=PLAN.name),
            core.delete_namespaced_secret(**place, name=PLAN.name),
        ]
        wanted = ["Secret", "Service", "Deployment", "Deployment", "Service", "CoreV1Event", "Pod", "Scale"]
        wanted += ["Pod"] * (script != "run") + ["Status", "Service", "Status"]
        # The client itself leaves a Status as plain data.
        models = ["V1Status" if isinstance(one, dict) else type(one).__name__ for one in made]
        assert [name.removeprefix("V1") for name in models] == wanted
        for name, one in zip(models, made, strict=True):
            assert _unknown_keys(api.sanitize_for_serialization(one), name) == []
        with pytest.raises(client.ApiException) as refused:
            apps.read_namespaced_deployment(**place, name=PLAN.name)
        assert (refused.value.status, json.loads(refused.value.body)["reason"]) == (404, "NotFound")


def test_the_pod_goes_to_the_node_under_test_with_its_cards():
    pod = deployment_of(PLAN)["spec"]["template"]["spec"]
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}]
    assert (pod["nodeSelector"], pod["runtimeClassName"]) == ({"rack": "r1"}, "nvidia")
    assert pod["tolerations"] == [{"key": "under-test", "operator": "Exists", "effect": "NoSchedule"}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["containers"][0]["resources"]["limits"] == {
        "nvidia.com/gpu": "2",
        "memory": "64Gi",
        "cpu": "8",
    }
    assert pod["enableServiceLinks"] is False


def test_secrets_are_only_in_the_secret():
    assert KEY not in json.dumps(deployment_of(PLAN)) + repr(PLAN)
    assert secret_of(replace(PLAN, secrets={})) is None


def test_a_node_port_does_not_pass_requests_on_to_other_nodes():
    assert service_of(PLAN)["spec"]["externalTrafficPolicy"] == "Local"
    assert "externalTrafficPolicy" not in service_of(replace(PLAN, service="ClusterIP"))["spec"]


@pytest.mark.parametrize(
    ("text", "value"), [("2026-11-30T10:00:00Z", "2026-11-30T10-00-00Z"), ("-x-", "x"), ("a" * 80, "a" * 63)]
)
def test_a_run_id_becomes_a_label(text, value):
    assert label_value(text) == value


def test_all_problems_of_a_table_are_told():
    assert settings_checkers()["kubernetes"](
        {
            "image": "i",
            "service": "LoadBalancer",
            "tolerations": [{"kee": "x"}],
            "shm_size": "lots",
            "gpus": 0,
        },
    ) == [
        "'service' must be one of NodePort, ClusterIP, not 'LoadBalancer'",
        "'gpus' must be a whole number of at least 1, not 0",
        "tolerations[0]: unknown key 'kee'; valid: key, operator, value, effect, tolerationSeconds",
        "'shm_size' must be a size such as '512m' or '1g', not 'lots'",
    ]


def test_we_know_that_we_are_outside():
    assert in_cluster() is False


def test_what_a_dead_run_left_in_a_cluster_is_named_and_removed(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")
    dead = {"rackgate.io/boot": "another", "rackgate.io/engine": "e", "rackgate.io/run_id": "r1"}
    owner = {
        key.replace("rackgate.", "rackgate.io/"): value for key, value in owner_labels("r1", "e", "t").items()
    }
    with FakeCluster({}) as cluster:
        for name, notes in (("left", {**owner, **dead}), ("living", owner)):
            plan = replace(PLAN, name=name, annotations=notes, secrets={})
            cluster.answer("POST", "/api/v1/namespaces/rack/services", {}, service_of(plan))
        path = tmp_path / "rack.toml"
        path.write_text(
            '[target]\nname = "x"\nmodel = "m"\n[[engine]]\nname = "e"\nlauncher = "kubernetes"\n'
            f'[engine.settings]\nimage = "i"\nkubeconfig = "{cluster.kubeconfig(tmp_path / "kubeconfig")}"\n'
            'namespace = "rack"\n'
        )
        assert main(["clean", "--target", str(path)]) == 0
        assert list(cluster.objects) == [("services", "living")]
    pid = owner["rackgate.io/pid"]
    assert capsys.readouterr().out == (
        f"removed: service left in namespace rack (engine e, run r1, started by process {pid})\n"
    )


def test_the_pods_of_a_running_service_are_found_and_can_be_killed(launch, tmp_path, until):
    with FakeCluster() as cluster, launch(cluster) as engine:
        launch_label = cluster.manifest("deployments")["metadata"]["labels"]["rackgate.io/launch"]
        found = EngineSpec(
            name="service",
            launcher="remote",
            model="tiny",
            url=engine.url,
            settings={
                "pods": f"rackgate.io/launch={launch_label}",
                "kubeconfig": str(tmp_path / "kubeconfig"),
            },
        )
        with remote(found, run_id="r", log_dir=str(tmp_path)) as service:
            assert isinstance(service.handle, Killable)
            assert service.handle.names() == ["pod-1"]
            service.handle.kill()
            until(lambda: not service.handle.alive())


def test_a_label_that_no_pod_has_is_told(tmp_path, served, until):
    url = served()
    until(lambda: probe_engine(url, "tiny", {}, deadline_s=1).ok)
    with FakeCluster({}) as cluster:
        settings = {"pods": "app=none", "kubeconfig": cluster.kubeconfig(tmp_path / "kubeconfig")}
        lost = EngineSpec(name="service", launcher="remote", model="tiny", url=url, settings=settings)
        with (
            pytest.raises(LaunchFailed, match="no running pod has the label app=none"),
            remote(lost, run_id="r", log_dir=str(tmp_path)),
        ):
            pytest.fail("it was found")
