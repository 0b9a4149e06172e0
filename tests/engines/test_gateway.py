"""A gateway that the run starts: HAProxy in front of the engines, as a process and in a container."""

import json
import shutil
import sys
from pathlib import Path

import httpx
import pytest

from rackgate.doctor.queries import query_engine, query_gateway
from rackgate.engines.bundle import needs_of
from rackgate.engines.launchers.containers.launcher import container
from rackgate.engines.launchers.processes.launcher import process
from rackgate.engines.probe import probe_engine
from rackgate.evidence.record import read_records
from rackgate.nouns.engine import Killable, LaunchFailed, Partitionable
from rackgate.nouns.target import EngineSpec, Gateway, Target

SERVER = Path(__file__).parent / "tiny_engine.py"
HEAD = """
[target]
name = "two"
model = "tiny"

[[node]]
name = "here"
"""
ENGINE = """
[[engine]]
name = "{name}"
launcher = "process"
pool = "cpu"
node = "here"
[engine.settings]
command = {command}
ready_timeout_s = 60
stop_timeout_s = 2
"""
GATEWAY = """
[gateway]
launcher = "process"
[gateway.settings]
command = ["haproxy", "-db", "-f", "{files}/haproxy.cfg"]
ready_timeout_s = 30
stop_timeout_s = 2
[gateway.settings.files]
"haproxy.cfg" = '''
defaults
    mode http
    timeout connect 1s
    timeout client 20s
    timeout server 20s
listen users
    bind {host}:{port}
    balance roundrobin
    http-response set-header x-served-by %s
    server {each.name} {each.host}:{each.port}
'''
"""
ASKING = """
import httpx
import pytest
pytestmark = pytest.mark.rack_acceptance

def test_who_answers(rack_engines, rack_run):
    gateway = rack_engines.gateway()
    (front,) = rack_engines.front(rack_run, "soak")
    assert front == gateway
    said = [httpx.get(f"{gateway.url}/v1/models").headers["x-served-by"] for _ in range(4)]
    print("served by", sorted({gateway.served_by[name] for name in said}))
"""
NOWHERE = """
import pytest
pytestmark = pytest.mark.rack_acceptance

def test_users_come_in_nowhere(rack_engines, rack_run):
    assert rack_engines.gateway() is None
    assert rack_engines.front(rack_run, "soak") == []
    print("why:", rack_engines.failures["gateway"])
"""
STARTS = [sys.executable, str(SERVER), "--port", "{port}"]
ENDS = [sys.executable, "-c", "raise SystemExit(3)"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "docker-two-engines.toml"


@pytest.fixture(scope="module", autouse=True)
def haproxy():
    if shutil.which("haproxy") is None:
        pytest.fail("haproxy is missing: make system, or apt-get install haproxy", pytrace=False)


@pytest.fixture
def accept(pytester):
    """Run a test in front of these engines and this gateway; return its output and the run's records."""

    def run(test, *, gateway=GATEWAY, **engines):
        pytester.makeconftest("")
        tables = [ENGINE.format(name=name, command=json.dumps(words)) for name, words in engines.items()]
        pytester.path.joinpath("rack.toml").write_text(HEAD + "".join(tables) + gateway)
        pytester.makepyfile(test_it=test)
        result = pytester.runpytest_subprocess(
            "-m",
            "rack_acceptance",
            "--rack-target=rack.toml",
            "--rack-out=run",
            "-s",
            "-p",
            "no:cacheprovider",
        )
        records = list(read_records(pytester.path / "run" / "evidence" / "records.jsonl"))
        told = [one for one in records if one["kind"] == "engine" and one["engine"] == "gateway"]
        return result.stdout.str(), told, pytester.path / "run" / "evidence" / "logs"

    return run


def test_a_gateway_is_started_after_the_engines_and_says_which_of_them_answered(accept):
    output, told, logs = accept(ASKING, a=STARTS, b=STARTS)
    assert "served by ['a', 'b']" in output
    assert [record["state"] for record in told] == ["ready", "stopped"]
    assert (told[0]["launcher"], told[0]["entity"]) == ("process", "gateway")
    assert "server a 127.0.0.1:" in (logs / "gateway.files" / "haproxy.cfg").read_text()
    assert (logs / "gateway.log").exists()


def test_an_engine_that_did_not_come_up_is_not_behind_the_gateway(accept):
    output, _, logs = accept(ASKING, a=STARTS, b=ENDS)
    assert "served by ['a']" in output
    assert "server b" not in (logs / "gateway.files" / "haproxy.cfg").read_text()


def test_a_gateway_that_ends_is_a_failure_with_its_last_words(accept):
    output, told, _ = accept(NOWHERE, gateway=GATEWAY.replace("balance", "balanse"), a=STARTS)
    assert [record["state"] for record in told] == ["failed"]
    assert "gateway: the process ended with exit code 1" in told[0]["message"]
    assert "why: gateway: the process ended" in output


def test_a_gateway_without_engines_is_not_started(accept):
    _, told, _ = accept(NOWHERE, a=ENDS)
    assert told[0]["message"] == "gateway: it was not started: no engine came up"


def test_a_gateway_in_a_box_of_its_own_cannot_reach_this_machines_loopback(accept):
    boxed = '[gateway]\nlauncher = "container"\n[gateway.settings]\nimage = "x:1"\n'
    _, told, _ = accept(NOWHERE, gateway=boxed, a=STARTS)
    assert "it was not started: a container does not reach a at http://127.0.0.1:" in told[0]["message"]
    assert "network = 'host'" in told[0]["hint"]


def test_what_a_gateway_needs_is_looked_for_before_a_run_and_is_no_need_of_the_engines():
    gateway = Gateway(launcher="process", settings={"command": ["no-such-proxy", "{each.url}"]})
    engine = EngineSpec(name="a", launcher="process", model="m", settings={"command": ["sh"]})
    target = Target(name="t", model="m", grade="cpu", engines=(engine,), gateway=gateway)
    needs = {(need.wanted_by, need.name): need.here for need in needs_of(target)}
    assert (needs["a", "sh"], needs["gateway", "no-such-proxy"]) == (True, False)
    assert query_engine(engine, target, 1.0).ok
    asked = query_gateway(target, 1.0)
    assert (asked.ok, asked.cure) == (False, "bring command no-such-proxy here")


def test_files_are_laid_beside_a_process_with_the_words_filled_in(process_spec, tmp_path):
    show = "import sys; print(open(sys.argv[1] + '/a.json').read()); raise SystemExit(4)"
    spec = process_spec(
        command=[sys.executable, "-c", show, "{files}"],
        files={"a.json": '{"port": {port}, "name": "{name}"}'},
        port=45_671,
    )
    with pytest.raises(LaunchFailed) as failed, process(spec, run_id="r", log_dir=str(tmp_path)):
        pytest.fail("it came up")
    assert json.loads(failed.value.log_tail) == {"port": 45_671, "name": "tiny"}


@pytest.mark.docker
def test_a_container_on_its_machines_network_publishes_nothing_and_cannot_be_cut(
    docker_image, container_spec, docker_client, tmp_path, until
):
    spec = container_spec(network="host", files={"note.txt": "{name} at {host}:{port}"})
    with container(spec, run_id="r", log_dir=str(tmp_path)) as engine:
        kinds = {Killable: True, Partitionable: False}
        assert {kind: isinstance(engine.handle, kind) for kind in kinds} == kinds
        box = docker_client.containers.get(engine.handle.ident)
        assert box.attrs["HostConfig"]["NetworkMode"] == "host"
        assert not box.attrs["HostConfig"]["PortBindings"]
        note = box.exec_run(["cat", "/run/rackgate/note.txt"]).output.decode()
        assert f"http://{note.split()[-1]}" == engine.url
        engine.handle.kill()
        until(lambda: not engine.handle.alive())
        engine.handle.restart()
        until(lambda: probe_engine(engine.url, "simulated", {}, deadline_s=1.0).ok)


@pytest.mark.docker
def test_a_gateway_whose_container_ends_says_so_with_its_last_words(docker_image, container_spec, tmp_path):
    wrong = {"haproxy.cfg": "listen users\n    bind {host}:{port}\n    balanse roundrobin\n"}
    settings = {"image": "rackgate-haproxy:local", "command": ["-db", "-f", "{files}/haproxy.cfg"]}
    spec = container_spec(name="gateway", **{**settings, "network": "host", "files": wrong})
    with pytest.raises(LaunchFailed) as failed, container(spec, run_id="r", log_dir=str(tmp_path)):
        pytest.fail("it came up")
    assert str(failed.value).startswith("gateway: the container ended with exit code 1 after")
    assert "unknown keyword 'balanse'" in failed.value.log_tail


@pytest.mark.docker
def test_a_killed_container_is_routed_around_and_comes_back_into_rotation(
    docker_image, container_spec, tmp_path, until
):
    """Through the real gateway of the example, without the ladder around it."""
    from rackgate.config.target_file import load_target
    from rackgate.engines.gateway import gateway_spec
    from rackgate.engines.gateway_backends import with_backends
    from rackgate.engines.launchers import settings_checkers

    example = load_target(EXAMPLE, settings_checkers())
    logs = {"run_id": "r", "log_dir": str(tmp_path)}

    def answered():
        response = httpx.get(f"{gateway.url}/v1/models", timeout=5.0)
        return (response.status_code, response.headers.get("x-served-by"))

    with (
        container(container_spec(name="a"), **logs) as first,
        container(container_spec(name="b"), **logs) as second,
    ):
        spec = gateway_spec(example)
        filled = with_backends(spec.settings, {"a": first.url, "b": second.url})
        front = container_spec(name="gateway", **{"command": filled["command"], **filled})
        with container(front, **logs) as gateway:
            until(lambda: {answered() for _ in range(8)} == {(200, "a"), (200, "b")})
            second.handle.kill()
            assert {answered()[0] for _ in range(40)} == {200}
            until(lambda: {answered() for _ in range(8)} == {(200, "a")})
            second.handle.restart()
            until(lambda: (200, "b") in {answered() for _ in range(8)})
    assert "GET /v1/models" in (tmp_path / "gateway.log").read_text()
