from dataclasses import replace

import pytest

from rackgate.engines.launchers.containers.daemon import choose_daemon
from rackgate.engines.launchers.containers.published import Published
from rackgate.engines.launchers.members import parts_of
from rackgate.nouns.target import EngineSpec

DAEMON = choose_daemon("unix:///nowhere/docker.sock", context=None, tls_folder=None)
TRITON = EngineSpec(
    name="t", launcher="container", model="m", protocol="triton", settings={"engine": "triton"}
)


def published(spec, inside=8000):
    (part,) = parts_of(spec)
    ports = Published()
    bound, metrics = ports.bind(part, DAEMON), ports.metrics(part, DAEMON, inside)
    assert (bound, metrics) == (ports.bind(part, DAEMON), ports.metrics(part, DAEMON, inside))
    return bound, metrics


def test_tritons_metrics_have_a_second_port_at_the_same_address():
    (address, port), (inside, (there, own)) = published(TRITON)
    assert (address, inside, there) == ("127.0.0.1", 8002, "127.0.0.1")
    assert own != port


@pytest.mark.parametrize(
    "changes",
    [
        {"metrics": "/metrics"},
        {"metrics": ""},
        {"metrics": "http://10.0.0.1:8002/metrics"},
        {"settings": {"engine": "vllm"}},
        {"settings": {"engine": "triton", "network": "host"}},
    ],
)
def test_nothing_more_is_published_where_the_page_is_elsewhere_or_the_network_is_the_machines(changes):
    _, metrics = published(replace(TRITON, **{"protocol": "openai", **changes}))
    assert metrics is None


def test_a_page_on_the_engines_own_port_needs_no_second_one():
    bound, metrics = published(TRITON, inside=8002)
    assert (8002, bound) == metrics


def test_a_port_that_somebody_took_is_drawn_again_with_the_one_beside_it():
    (part,) = parts_of(replace(TRITON, settings={**TRITON.settings, "host_port": 4000}))
    ports = Published()
    assert ("127.0.0.1", 4000) == ports.bind(part, DAEMON)
    first = ports.metrics(part, DAEMON, 8000)
    ports.forget(part)
    assert ("127.0.0.1", 4000) == ports.bind(part, DAEMON)
    assert first[0] == ports.metrics(part, DAEMON, 8000)[0]


def test_only_the_front_of_an_engine_shows_a_page():
    members = [{"name": "worker", "role": "decode"}, {"name": "front", "role": "router"}]
    spec = replace(TRITON, settings={"engine": "triton", "members": members})
    ports = Published()
    found = {part.short: ports.metrics(part, DAEMON, 8000) for part in parts_of(spec)}
    assert (None, 8002) == (found["worker"], found["front"][0])
