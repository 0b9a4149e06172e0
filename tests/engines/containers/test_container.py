import json
import signal
import socket
import time
from dataclasses import replace

import httpx
import pytest

from rackgate.engines.launchers.containers.devices import device_request
from rackgate.engines.launchers.containers.launcher import container
from rackgate.engines.leftovers import leftovers
from rackgate.engines.metrics_page import metrics_url
from rackgate.engines.probe import probe_engine
from rackgate.nouns.engine import Killable, LaunchFailed

pytestmark = pytest.mark.docker


@pytest.fixture
def launch(tmp_path):
    return lambda spec: container(spec, run_id="run-1", log_dir=str(tmp_path))


@pytest.fixture
def boxes(docker_client):
    """Return the ids of all containers of a launch or run, by one of our labels."""
    return lambda label: [
        entry["Id"]
        for entry in docker_client.api.containers(all=True, filters={"label": f"rackgate.{label}"})
    ]


def failure(launch, spec):
    start = time.monotonic()
    with pytest.raises(LaunchFailed) as failed, launch(spec):
        pytest.fail("it came up")
    return failed.value, time.monotonic() - start


def test_an_engine_in_a_container_is_yielded_after_a_token_and_gone_afterwards(
    launch, container_spec, tmp_path, boxes, docker_client
):
    with launch(container_spec()) as engine:
        facts = engine.handle.inspected()
        assert [engine.handle.ident] == boxes("run_id=run-1")
        assert [binding["HostIp"] for binding in facts["NetworkSettings"]["Ports"]["8000/tcp"]] == [
            "127.0.0.1"
        ]
        assert (
            engine.url == f"http://127.0.0.1:{facts['NetworkSettings']['Ports']['8000/tcp'][0]['HostPort']}"
        )
        assert facts["HostConfig"]["ShmSize"] == 64 * 1024 * 1024
        assert facts["Image"] == engine.image_digest == docker_client.images.get(facts["Image"]).id
        assert engine.cold_start_s > 0
        assert leftovers.find_leftovers() == []
    assert boxes("run_id=run-1") == []
    assert "boxed serves simulated on port 8000" in (tmp_path / "boxed.log").read_text()


def test_a_killed_container_comes_back_on_its_port(launch, container_spec, until):
    with launch(container_spec()) as engine:
        assert isinstance(engine.handle, Killable)
        engine.handle.kill()
        until(lambda: not engine.handle.alive())
        engine.handle.restart()
        assert engine.handle.alive()
        until(lambda: probe_engine(engine.url, "simulated", {}, "openai", 10).ok)


WITH_PAGE = (
    "mkdir -p /tmp/page; echo 'num_requests_running 3' > /tmp/page/metrics;"
    " python3 -m http.server 8002 --directory /tmp/page &"
    ' exec python3 /opt/rackgate/simulated_engine.py "$@"'
)


def test_a_metrics_page_on_a_port_of_its_own_is_published_too(launch, container_spec, until):
    spec = container_spec(entrypoint=["sh", "-c", WITH_PAGE, "sh"])
    with launch(replace(spec, metrics=":8002/metrics")) as engine:
        (binding,) = engine.handle.inspected()["NetworkSettings"]["Ports"]["8002/tcp"]
        assert ("127.0.0.1", f":{binding['HostPort']}/metrics") == (binding["HostIp"], engine.spec.metrics)
        page = metrics_url(replace(engine.spec, url=engine.url))
        until(lambda: "num_requests_running 3" in read(page))
        engine.handle.kill()
        until(lambda: not engine.handle.alive())
        engine.handle.restart()
        until(lambda: "num_requests_running 3" in read(page))


def read(url):
    try:
        return httpx.get(url, timeout=2.0, trust_env=False).text
    except httpx.HTTPError:
        return ""


def test_exactly_the_cards_of_the_engine_are_requested(launch, container_spec):
    with launch(container_spec(cards=["node1/gpu1", "node1/gpu3"], shm_size="1g")) as engine:
        (request,) = engine.handle.inspected()["HostConfig"]["DeviceRequests"]
    assert (request["DeviceIDs"], request["Count"], request["Capabilities"]) == (["1", "3"], 0, [["gpu"]])


def test_the_requested_ids_arrive_in_the_container(launch, container_spec, docker_client):
    with launch(container_spec(device_ids=["0", "GPU-00000000-0000-0000-0000-000000000001"])) as engine:
        # The daemon gives the hook its ids as a variable of the container's process.
        done = docker_client.containers.get(engine.handle.ident).exec_run(["cat", "/proc/1/environ"])
    assert b"NVIDIA_VISIBLE_DEVICES=0,GPU-00000000-0000-0000-0000-000000000001" in done.output.split(b"\0")


def test_an_empty_list_of_devices_wins_over_the_cards(container_spec):
    assert device_request(container_spec(cards=["node1/gpu0"], device_ids=[])) is None
    assert device_request(container_spec()) is None


def test_volumes_are_read_only(launch, container_spec, tmp_path, docker_client):
    for name in ("model", "cache"):
        (tmp_path / name).mkdir()
    spec = container_spec(
        volumes={str(tmp_path / "model"): "/model"}, writable_volumes={str(tmp_path / "cache"): "/cache"}
    )
    with launch(spec) as engine:
        box = docker_client.containers.get(engine.handle.ident)
        assert box.exec_run(["touch", "/model/x"]).exit_code != 0
        assert box.exec_run(["touch", "/cache/x"]).exit_code == 0
    assert (tmp_path / "cache" / "x").exists()


def test_a_container_that_exits_ends_the_wait_at_once(launch, container_spec, boxes):
    failed, took_s = failure(launch, container_spec("--knob", "no_such_knob=1", ready_timeout_s=600))
    assert took_s < 60
    assert "engine boxed: the container ended with exit code 1 after" in str(failed)
    assert "no_such_knob" in failed.log_tail
    assert boxes("run_id=run-1") == []


def test_a_program_that_the_image_lacks_is_told(launch, container_spec, boxes):
    failed, _ = failure(launch, container_spec(image="rackgate-base:bookworm", command=["/no/such/engine"]))
    assert "/no/such/engine" in str(failed)
    assert failed.hint.startswith("the command cannot run")
    assert boxes("run_id=run-1") == []


def test_an_image_that_is_not_here_is_not_pulled(launch, container_spec, docker_image):
    failed, _ = failure(launch, container_spec(image="no-such-image:1"))
    assert "the image no-such-image:1 is not on this machine" in str(failed)
    assert "docker pull no-such-image:1" in failed.hint


def test_a_wrong_model_is_the_models_layer(launch, container_spec, docker_image, boxes):
    failed, _ = failure(launch, container_spec(model="other", ready_timeout_s=4))
    assert failed.layer == "model"
    assert "it serves simulated" in str(failed)
    assert boxes("run_id=run-1") == []


def test_a_hung_engine_is_given_up_at_the_deadline(launch, container_spec, docker_image):
    failed, _ = failure(launch, container_spec("--knob", "hung=true", ready_timeout_s=3))
    assert failed.layer == "service"
    assert "no token within 3 s" in str(failed)


def test_without_the_hook_the_daemons_own_refusal_is_told(launch, container_spec, daemon_without_hook):
    spec = container_spec(image="empty:local", docker_host=daemon_without_hook, cards=["node1/gpu0"])
    failed, _ = failure(launch, spec)
    assert 'could not select device driver "" with capabilities: [[gpu]]' in str(failed)
    assert (failed.layer, "container toolkit" in failed.hint) == ("service", True)


def test_another_driver_that_the_daemon_lacks_is_told_too(launch, container_spec, docker_image, boxes):
    failed, _ = failure(launch, container_spec(device_ids=["0"], device_driver="no-such-driver"))
    assert 'could not select device driver "no-such-driver"' in str(failed)
    assert boxes("run_id=run-1") == []


def test_no_daemon_is_told(launch, container_spec):
    failed, _ = failure(launch, container_spec(docker_host="unix:///no/such/socket"))
    assert "no Docker daemon answers: there is no socket /no/such/socket" in str(failed)


def test_what_a_killed_owner_leaves_is_found_and_removed(owner, container_spec, tmp_path, boxes):
    process, facts = owner(container_spec(), tmp_path)
    assert leftovers.find_leftovers() == []
    process.kill()
    process.wait()
    (left,) = leftovers.find_leftovers()
    assert ("container", facts["ident"], "boxed", "run-of-owner", process.pid) == (
        left.kind,
        left.ident,
        left.engine,
        left.run_id,
        left.owner_pid,
    )
    assert leftovers.remove(left)
    assert boxes("run_id=run-of-owner") == []
    assert leftovers.find_leftovers() == []


def test_ctrl_c_removes_the_container(owner, container_spec, tmp_path, boxes):
    process, _ = owner(container_spec(), tmp_path)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=30)
    assert boxes("run_id=run-of-owner") == []


def test_ctrl_c_while_it_loads_removes_the_container(owner, container_spec, tmp_path, boxes, until):
    process, _ = owner(container_spec("--knob", "hung=true", ready_timeout_s=600), tmp_path, wait=False)
    until(lambda: boxes("run_id=run-of-owner"))
    process.send_signal(signal.SIGINT)
    process.wait(timeout=30)
    assert boxes("run_id=run-of-owner") == []


def test_two_engines_answer_at_their_own_addresses(launch, container_spec):
    with launch(container_spec(name="a")) as first, launch(container_spec(name="b")) as second:
        assert first.url != second.url
        assert [_served_by(first.url), _served_by(second.url)] == ["a", "b"]


def _served_by(url):
    import urllib.request

    body = json.dumps(
        {"model": "simulated", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    )
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", body.encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.headers["x-served-by"]


@pytest.mark.parametrize(("metrics", "taken_draw", "url_draw"), [(None, 0, 1), (":8002/metrics", 1, 2)])
def test_a_port_taken_between_look_and_start_is_drawn_again(
    launch, container_spec, monkeypatch, docker_image, metrics, taken_draw, url_draw
):
    from rackgate.engines.launchers.containers import published as module

    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        real, drawn = module.free_port, []

        def unlucky(host):
            drawn.append(taken if len(drawn) == taken_draw else real(host))
            return drawn[-1]

        monkeypatch.setattr(module, "free_port", unlucky)
        with launch(replace(container_spec(), metrics=metrics)) as engine:
            assert engine.url == f"http://127.0.0.1:{drawn[url_draw]}"
            assert engine.spec.metrics == (f":{drawn[url_draw + 1]}/metrics" if metrics else None)


LISTS_ONE = 'echo "GPU 0: Simulated (UUID: GPU-1)"'
LOST = 'echo "Failed to initialize NVML: Unknown Error"; exit 255'


def test_a_container_that_lost_its_cards_while_it_ran_says_so(launch, container_spec, docker_client):
    with launch(container_spec(cards=["node1/gpu0"])) as engine:
        box = docker_client.containers.get(engine.handle.ident)
        assert engine.handle.cards_lost() == ""  # there is no nvidia-smi: nobody can tell
        for said, lost in ((LISTS_ONE, False), (LOST, True), (LISTS_ONE, False)):
            script = (
                f"printf '#!/bin/sh\\n%s\\n' '{said}' > /usr/bin/nvidia-smi; chmod 755 /usr/bin/nvidia-smi"
            )
            assert box.exec_run(["sh", "-c", script, "/usr/bin/nvidia-smi"], user="root").exit_code == 0
            told = engine.handle.cards_lost()
            assert lost is ("Failed to initialize NVML" in told), told
        engine.handle.kill()
        assert engine.handle.cards_lost() == ""  # it was killed, which says nothing of cards
