"""How containers are started: secrets, limits, cards, members."""

import json
import os

import pytest
from started_container import KEY, environment_of, failure

from rackgate.cli import main
from rackgate.engines import launch_records
from rackgate.engines.launchers.containers.launcher import container
from rackgate.engines.leftovers import leftovers
from rackgate.engines.probe import probe_engine
from rackgate.nouns.engine import Killable

pytestmark = pytest.mark.docker


@pytest.fixture
def launch(tmp_path, docker_image):
    told = []

    def start(spec):
        return container(spec, run_id="run-2", log_dir=str(tmp_path), on_progress=told.append)

    start.told = told
    return start


def test_a_secret_reaches_the_engine_and_no_description_of_it(
    launch, container_spec, docker_client, monkeypatch, tmp_path
):
    monkeypatch.setenv("HUB_TOKEN", KEY)
    (tmp_path / "ngc").write_text(f"{KEY}-of-a-file\n")
    spec = container_spec(
        env_from=["HUB_TOKEN"], secret_files={"NGC_API_KEY": str(tmp_path / "ngc")}, env={"A": "1"}
    )
    with launch(spec) as engine:
        inspected = json.dumps(engine.handle.inspected())
        seen = environment_of(docker_client, engine)
        assert engine.handle.inspected()["Config"]["Cmd"][-1] == "boxed"
        engine.handle.restart()
    assert (seen["HUB_TOKEN"], seen["NGC_API_KEY"], seen["A"]) == (KEY, f"{KEY}-of-a-file", "1")
    assert KEY not in inspected
    assert KEY not in (tmp_path / "boxed.log").read_text()
    assert KEY not in repr(spec) + repr(engine)


def test_a_secret_can_be_a_file_for_an_image_without_a_shell(
    launch, container_spec, docker_client, monkeypatch
):
    monkeypatch.setenv("HUB_TOKEN", KEY)
    with launch(container_spec(env_from=["HUB_TOKEN"], secrets_as="files")) as engine:
        seen = environment_of(docker_client, engine)
        box = docker_client.containers.get(engine.handle.ident)
        assert box.exec_run(["cat", seen["HUB_TOKEN_FILE"]]).output.decode() == KEY
    assert seen["HUB_TOKEN_FILE"] == "/run/secrets/HUB_TOKEN"
    assert KEY not in json.dumps(seen)


def test_a_secret_that_the_engine_writes_to_its_log_is_not_in_ours(launch, container_spec, monkeypatch):
    monkeypatch.setenv("HUB_PASS", KEY)
    talker = ["/bin/sh", "-c", "echo using $HUB_PASS; exit 3"]
    failed = failure(
        launch, container_spec(image="rackgate-base:bookworm", command=talker, env_from=["HUB_PASS"])
    )
    assert (failed.log_tail, KEY in str(failed)) == ("using [redacted]", False)


def test_a_secret_that_is_not_there_is_told_before_anything_starts(launch, container_spec, monkeypatch):
    monkeypatch.delenv("ABSENT_TOKEN", raising=False)
    failed = failure(launch, container_spec(env_from=["ABSENT_TOKEN"]))
    assert str(failed).endswith("not set in our environment: ABSENT_TOKEN")
    failed = failure(launch, container_spec(secret_files={"X": "/no/such/file"}))
    assert "the file /no/such/file of the secret X cannot be read: No such file" in str(failed)


def test_limits_are_given_to_the_daemon(launch, container_spec, docker_client):
    spec = container_spec(
        ulimits={"nofile": 1024}, memory="512m", ipc="private", user="1000", shm_size="128m"
    )
    with launch(spec) as engine:
        host, configuration = (engine.handle.inspected()[part] for part in ("HostConfig", "Config"))
        limits = docker_client.containers.get(engine.handle.ident).exec_run(["cat", "/proc/1/limits"]).output
    assert (host["Memory"], host["IpcMode"], host["ShmSize"]) == (512 * 2**20, "private", 128 * 2**20)
    assert configuration["User"] == "1000"
    assert [line.split()[3:5] for line in limits.decode().splitlines() if "open files" in line] == [
        ["1024", "1024"]
    ]


def test_the_hosts_shared_memory_needs_no_size(launch, container_spec):
    with launch(container_spec(ipc="host", shm_size="64m")) as engine:
        assert engine.handle.inspected()["HostConfig"]["IpcMode"] == "host"


def test_cards_that_do_not_arrive_end_the_launch(launch, container_spec, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA L40S (UUID: GPU-1)'\n")
    tool.chmod(0o755)
    there = {str(tool): "/usr/bin/nvidia-smi"}
    with launch(container_spec(device_ids=["0"], volumes=there)) as engine:
        assert engine.handle.card_view().cards == 1
    failed = failure(launch, container_spec(device_ids=["0", "1"], volumes=there))
    assert "the container sees 1 cards, 2 were asked for [cards_not_as_asked]" in str(failed)


def test_cards_that_cannot_be_counted_are_told(launch, container_spec):
    with launch(container_spec(device_ids=["0"])):
        pass
    assert "boxed: no nvidia-smi in the container, so its cards cannot be counted from inside" in launch.told


def test_a_cdi_name_goes_to_the_cdi_driver_which_this_daemon_may_lack(launch, container_spec):
    failed = failure(launch, container_spec(cdi_devices=["nvidia.com/gpu=0"]))
    assert failed.explanation.name in ("gpu_runtime_missing", "cdi_unresolvable")
    assert failed.explanation.cause == "environment"


def test_a_paused_engine_keeps_its_port_and_goes_on_afterwards(launch, container_spec):
    with launch(container_spec()) as engine:
        engine.handle.pause()
        probe = probe_engine(engine.url, "simulated", {}, deadline_s=1.0)
        assert (probe.layer_failed, engine.handle.alive()) == ("service", True)
        engine.handle.resume()
        assert probe_engine(engine.url, "simulated", {}, deadline_s=20.0).ok


def test_an_engine_comes_back_on_its_port_without_a_card_and_with_it_again(launch, container_spec):
    spec = container_spec(cards=["node1/gpu0", "node1/gpu1"], device_ids=["GPU-0", "GPU-1"], shm_size="1g")
    with launch(spec) as engine:

        def asked():
            return engine.handle.inspected()["HostConfig"]["DeviceRequests"][0]["DeviceIDs"]

        engine.handle.restart_without("node1/gpu0")
        assert asked() == ["GPU-1"]
        engine.handle.restart_without()
        assert asked() == ["GPU-0", "GPU-1"]
        assert engine.handle.alive()
        with pytest.raises(ValueError, match="engine boxed has no card node2/gpu0"):
            engine.handle.restart_without("node2/gpu0")
        assert engine.handle.alive()


def test_the_members_of_an_engine_find_each_other_and_are_killed_one_by_one(
    launch, container_spec, docker_client, until, tmp_path
):
    spec = container_spec(
        members=[
            {"name": "router", "role": "router", "env": {"DECODE": "{decode.url}"}},
            {"name": "decode", "role": "decode", "port": 8100},
        ]
    )
    with launch(spec) as engine:
        group = engine.handle
        assert (list(group.parts), group.roles["boxed-router"]) == (
            ["boxed-decode", "boxed-router"],
            "router",
        )
        router = docker_client.containers.get(group.parts["boxed-router"].ident)
        asked = router.exec_run(
            [
                "python3",
                "-c",
                "import os, urllib.request as u; print(u.urlopen(os.environ['DECODE'] + '/health').status)",
            ]
        )
        assert asked.output.decode().strip() == "200"
        assert isinstance(group, Killable)
        group.parts["boxed-decode"].kill()
        until(lambda: not group.parts["boxed-decode"].alive())
        assert group.parts["boxed-router"].alive()
        group.restart()
        assert all(part.alive() for part in group.parts.values())
        assert len(docker_client.networks.list(filters={"label": "rackgate.run_id=run-2"})) == 1
    assert docker_client.networks.list(filters={"label": "rackgate.run_id=run-2"}) == []
    assert sorted(path.name for path in tmp_path.glob("*.log")) == ["boxed-decode.log", "boxed-router.log"]


def test_a_member_that_dies_while_we_wait_ends_the_wait_with_its_name(launch, container_spec):
    spec = container_spec(
        "--knob",
        "hung=true",
        ready_timeout_s=600,
        members=[
            {"name": "front", "front": True},
            {
                "name": "rank1",
                "image": "rackgate-base:bookworm",
                "command": ["/bin/sh", "-c", "sleep 1; exit 7"],
            },
        ],
    )
    failed = failure(launch, spec)
    assert "the container boxed-rank1 ended with exit code 7" in str(failed)


def test_networks_and_volumes_of_dead_runs_are_named_and_removed(docker_client, capsys):
    dead = {**launch_records.owner_labels("dead-run", "e", "t"), "rackgate.boot": "another"}
    docker_client.networks.create("rackgate-test-left", labels=dead)
    docker_client.volumes.create("rackgate-test-left", labels=dead)
    found = [left for left in leftovers.find_leftovers() if left.run_id == "dead-run"]
    assert [(left.kind, left.detail) for left in found] == [
        ("network", "network rackgate-test-left"),
        ("volume", "volume rackgate-test-left"),
    ]
    assert main(["clean", "--list", "--json"]) == 0
    assert [left["outcome"] for left in json.loads(capsys.readouterr().out)] == ["left", "left"]
    assert main(["clean"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"removed: {left.detail} (engine e, run dead-run, started by process {os.getpid()})" for left in found
    ]
    assert [left for left in leftovers.find_leftovers() if left.run_id == "dead-run"] == []
