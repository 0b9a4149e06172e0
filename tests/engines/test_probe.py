import json
import socket
import threading
from pathlib import Path

import pytest

from rackgate.engines.launchers import register_launchers
from rackgate.engines.launchers.ports import free_port, port_taken, url_of
from rackgate.engines.probe import EngineProbe, probe_engine
from rackgate.engines.readiness import wait_until_ready
from rackgate.nouns.engine import LaunchFailed
from rackgate.nouns.target import EngineSpec


@pytest.fixture
def listening(until):
    """Return the URL of a server once its port is open."""

    def open_now(port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def wait(url):
        until(lambda: open_now(int(url.rpartition(":")[2])))
        return url

    return wait


def test_a_sound_engine_gives_a_token(served, listening):
    probe = probe_engine(listening(served()), "tiny", {}, "openai", 20)
    assert (probe.message, probe.ok) == ("", True)
    assert probe.served_models == ("tiny",)
    assert probe.output_tokens == 2
    assert probe.connect_ms > 0 < probe.first_token_ms


def test_a_closed_port_is_the_networks_layer():
    port = free_port()
    probe = probe_engine(f"http://127.0.0.1:{port}", "tiny", {}, "openai", 5)
    assert probe.layer_failed == "network"
    assert f"127.0.0.1 refuses port {port}: nothing listens there" == probe.message
    assert probe.hint.startswith("start the engine")


def test_a_name_that_does_not_resolve_is_the_networks_layer():
    probe = probe_engine("http://no-such-host.invalid:1", "tiny", {}, "openai", 5)
    assert probe.layer_failed == "network"
    assert "'no-such-host.invalid' does not resolve" in probe.message


def test_an_address_that_is_none_is_the_networks_layer():
    assert probe_engine("http://127.0.0.1:99999", "tiny", {}, "openai", 5).layer_failed == "network"


def test_a_port_that_speaks_no_http_is_the_services_layer():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet():
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(b"220 mail.example ESMTP\r\n")

        threading.Thread(target=greet, daemon=True).start()
        probe = probe_engine(f"http://127.0.0.1:{server.getsockname()[1]}", "tiny", {}, "openai", 5)
    assert probe.layer_failed == "service"
    assert "what answers is no HTTP" in probe.message


def test_a_silent_port_is_the_services_layer():
    with socket.create_server(("127.0.0.1", 0)) as server:
        probe = probe_engine(f"http://127.0.0.1:{server.getsockname()[1]}", "tiny", {}, "openai", 0.5)
    assert probe.layer_failed == "service"
    assert "no token from" in probe.message


@pytest.mark.parametrize(
    ("fault", "layer", "message"),
    [
        (
            "broken_500",
            "service",
            "answered 500 for model 'tiny': EngineCore encountered an issue (/health says 503)",
        ),
        (
            "in_stream_error",
            "service",
            "answered 200 and then failed (stream_error): EngineCore encountered an issue",
        ),
        ("no_token", "model", "answered 200 for 'tiny', but no token came out"),
        ("key", "service", "answered 401 for model 'tiny': Unauthorized"),
    ],
)
def test_each_fault_names_its_layer(served, listening, fault, layer, message):
    probe = probe_engine(listening(served("--fault", fault)), "tiny", {}, "openai", 20)
    assert layer == probe.layer_failed
    assert message in probe.message
    assert probe.hint


def test_a_hung_engine_whose_health_is_200_is_no_healthy_engine(served, listening):
    probe = probe_engine(listening(served("--fault", "hang")), "tiny", {}, "openai", 1.5)
    assert probe.layer_failed == "service"
    assert "before the deadline (/health says 200)" in probe.message


def test_a_wrong_model_is_the_models_layer_and_the_served_ones_are_named(served, listening):
    probe = probe_engine(listening(served()), "other", {}, "openai", 20)
    assert (probe.layer_failed, probe.served_models, probe.settled) == ("model", ("tiny",), True)
    assert "The model `other` does not exist.; it serves tiny" in probe.message


def test_an_unknown_protocol_is_told_and_not_raised(served, listening):
    probe = probe_engine(listening(served()), "tiny", {}, "smoke-signals", 5)
    assert probe.layer_failed == "service"
    assert "unknown protocol 'smoke-signals'" in probe.message


@pytest.fixture
def launch():
    launchers = {}
    register_launchers(lambda name, launcher, _check: launchers.__setitem__(name, launcher))
    return lambda spec: launchers["remote"](spec, run_id="r", log_dir="")


def test_a_remote_engine_is_yielded_with_its_key(served, listening, launch, monkeypatch):
    monkeypatch.setenv("TINY_KEY", "right-key")
    url = listening(served("--fault", "key"))
    spec = EngineSpec(name="far", launcher="remote", model="tiny", url=url, api_key_env="TINY_KEY")
    with launch(spec) as engine:
        assert (url, None, None) == (engine.url, engine.cold_start_s, engine.handle)
        assert "right-key" not in repr(engine)


def test_a_remote_engine_that_is_not_there_names_the_layer_and_what_to_try(launch):
    spec = EngineSpec(name="far", launcher="remote", model="tiny", url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(LaunchFailed, match=r"engine far: 127\.0\.0\.1 refuses port") as failed, launch(spec):
        pass
    assert failed.value.layer == "network"
    assert failed.value.hint


def test_a_key_that_is_not_set_is_told_by_its_name(launch, monkeypatch):
    monkeypatch.delenv("ABSENT_KEY", raising=False)
    spec = EngineSpec(name="far", launcher="remote", model="tiny", url="http://x", api_key_env="ABSENT_KEY")
    with pytest.raises(LaunchFailed, match="ABSENT_KEY is not set"), launch(spec):
        pass


@pytest.fixture(scope="module")
def container_states():
    return json.loads((Path(__file__).parents[1] / "cases" / "inputs" / "CON-05.json").read_text())


def waiting(states):
    """Wait on a scripted container: each look at it sees the next state; the last one stays."""
    from rackgate.engines.launchers.containers.engine import status_ended

    looks = []

    def see():
        looks.append(states[min(len(looks), len(states) - 1)])
        return looks[-1]

    def ask(_left_s):
        ready = "startup complete" in (looks[-1].get("log", "") if looks else "")
        return EngineProbe() if ready else EngineProbe(layer_failed="network")

    probe = wait_until_ready(ask, lambda: status_ended(see()["status"]), 1800)
    return probe, len(looks)


def test_a_container_that_exits_ends_the_wait_at_once(container_states):
    assert waiting(container_states["a"]) == (None, 3)


def test_created_and_restarting_are_no_ends(container_states):
    probe, _ = waiting(container_states["b"])
    assert EngineProbe() == probe


def test_the_end_of_an_engine_ends_the_wait_though_a_request_hangs():
    release = threading.Event()
    polls = iter([False, False, True])

    def hang(_left_s):
        release.wait(30)
        return EngineProbe()

    assert wait_until_ready(hang, lambda: next(polls), 1800) is None
    release.set()


def test_the_deadline_gives_the_last_answer():
    assert (
        wait_until_ready(
            lambda _left_s: EngineProbe(layer_failed="service", message="why"), lambda: False, 0.1
        ).message
        == "why"
    )


def test_ports_and_urls_keep_their_address_family():
    assert url_of("::1", 80) == "http://[::1]:80"
    assert url_of("127.0.0.1", 80) == "http://127.0.0.1:80"
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert port_taken("127.0.0.1", server.getsockname()[1])
    assert not port_taken("127.0.0.1", free_port("127.0.0.1"))
