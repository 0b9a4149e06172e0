"""A container whose network is cut: clients are refused, its process goes on, and it is reached again."""

import socket

import pytest

from rackgate.engines.launchers.containers import network_cut
from rackgate.engines.launchers.containers.launcher import container
from rackgate.engines.launchers.ports import port_taken
from rackgate.engines.probe import probe_engine
from rackgate.nouns.engine import CardRemovable, Killable, Partitionable, Pausable

pytestmark = pytest.mark.docker


@pytest.fixture
def launch(tmp_path, docker_image):
    return lambda spec: container(spec, run_id="run-3", log_dir=str(tmp_path))


def test_a_container_can_do_all_that_an_engine_can(launch, container_spec):
    with launch(container_spec()) as engine:
        kinds = (Killable, Pausable, Partitionable, CardRemovable)
        assert [kind for kind in kinds if not isinstance(engine.handle, kind)] == []


def _answers(engine):
    return probe_engine(engine.url, "simulated", {}, deadline_s=20.0).ok


def test_a_partitioned_engine_is_not_reached_goes_on_inside_and_serves_after_it_rejoined(
    launch, container_spec, docker_client
):
    with launch(container_spec()) as engine:
        box = docker_client.containers.get(engine.handle.ident)
        inside = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/health').status)"

        def life():
            state = engine.handle.inspected()["State"]
            begun = box.exec_run(["cat", "/proc/1/stat"]).output.split()[21]
            return state["Pid"], state["StartedAt"], begun

        before = life()
        with socket.create_connection(("127.0.0.1", int(engine.url.rpartition(":")[2])), 20) as client:
            for _ in range(2):
                engine.handle.partition()
                assert probe_engine(engine.url, "simulated", {}, deadline_s=2.0).layer_failed == "network"
            assert _ended(client)
        assert box.exec_run(["python3", "-c", inside]).output.strip() == b"200"
        assert (engine.handle.alive(), life()) == (True, before)
        for _ in range(2):
            engine.handle.rejoin()
            assert _answers(engine)
        assert life() == before


def _ended(client):
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_the_port_of_a_partitioned_engine_is_kept_for_it(launch, container_spec):
    with launch(container_spec()) as engine:
        port = int(engine.url.rpartition(":")[2])
        engine.handle.partition()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
    assert not port_taken("127.0.0.1", port)


def test_a_port_that_was_taken_is_told_and_the_engine_rejoins_when_it_is_free(
    launch, container_spec, monkeypatch
):
    monkeypatch.setattr(network_cut, "_PORT_DEADLINE_S", 0.0)
    with launch(container_spec()) as engine:
        port = int(engine.url.rpartition(":")[2])
        with monkeypatch.context() as late:
            late.setattr(network_cut, "hold_port", lambda *_: (_ for _ in ()).throw(OSError("too late")))
            engine.handle.partition()
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(OSError, match="port was taken by somebody else"),
        ):
            engine.handle.rejoin()
        engine.handle.rejoin()
        assert _answers(engine)


def test_an_engine_that_was_killed_while_partitioned_comes_back_on_its_port(launch, container_spec, until):
    with launch(container_spec(cards=["node1/gpu0"], device_ids=["GPU-0"])) as engine:
        for back in (engine.handle.restart, engine.handle.restart_without):
            engine.handle.partition()
            engine.handle.kill()
            until(lambda: not engine.handle.alive())
            back()
            until(lambda: _answers(engine))


def test_partition_and_rejoin_are_safe_after_the_engine_is_gone(launch, container_spec, docker_client, until):
    with launch(container_spec()) as engine:
        handle = engine.handle
        handle.partition()
        handle.kill()
        until(lambda: not handle.alive())
        handle.partition()
        handle.rejoin()
        assert not handle.alive()
        handle.partition()
        docker_client.containers.get(handle.ident).remove(force=True)
        handle.partition()
        handle.rejoin()
    handle.partition()
    handle.rejoin()


def test_a_member_rejoins_under_its_name_and_nothing_is_left_of_one_that_stays_partitioned(
    launch, container_spec, docker_client
):
    spec = container_spec(
        members=[{"name": "router", "role": "router"}, {"name": "decode", "port": 8100}],
    )
    with launch(spec) as engine:
        decode = engine.handle.parts["boxed-decode"]
        router = docker_client.containers.get(engine.handle.parts["boxed-router"].ident)
        code = "import urllib.request as u; print(u.urlopen('http://decode:8100/health', timeout=5).status)"
        asked = ["python3", "-c", code]
        decode.partition()
        assert router.exec_run(asked).exit_code != 0
        decode.rejoin()
        assert router.exec_run(asked).output.strip() == b"200"
        decode.partition()
    label = {"label": "rackgate.run_id=run-3"}
    assert docker_client.containers.list(all=True, filters=label) == []
    assert docker_client.networks.list(filters=label) == []
