"""What the launchers' tests share: specs, a tiny server, an owner to be killed, a Docker daemon."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from rackgate.engines.launchers.ports import free_port
from rackgate.nouns.target import EngineSpec, Member

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
IMAGE = "rackgate-simulated-engine:local"
SERVER = HERE / "tiny_engine.py"
sys.path.append(str(HERE))


def pytest_configure(config):
    config.addinivalue_line("markers", "docker: needs a Docker daemon; fails, and never skips, without one")
    config.addinivalue_line("markers", "real_engine: starts a real inference engine on the CPU")


@pytest.fixture(autouse=True)
def own_state_folder(tmp_path, monkeypatch):
    """Keep these tests' launches apart from the user's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "rackgate" / "launches"


@pytest.fixture
def until():
    """Wait for a condition with a deadline that only a hang can reach."""

    def wait(condition, limit_s=30.0):
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {limit_s} s")
            time.sleep(0.02)

    return wait


@pytest.fixture
def process_spec():
    """Return a spec whose process is the tiny server with these arguments."""

    def make(*arguments, name="tiny", model="tiny", command=None, cards=(), api_key_env=None, **settings):
        own = [sys.executable, str(SERVER), "--port", "{port}", *arguments]
        return EngineSpec(
            name=name,
            launcher="process",
            model=model,
            pool="cpu",
            api_key_env=api_key_env,
            members=(Member(node="node1", cards=tuple(cards)),) if cards else (),
            settings={"command": command or own, "ready_timeout_s": 30, "stop_timeout_s": 2, **settings},
        )

    return make


@pytest.fixture
def container_spec():
    """Return a spec whose container is the simulated engine with these arguments."""

    def make(*arguments, name="boxed", model="simulated", cards=(), **settings):
        command = [
            "--host",
            "{host}",
            "--port",
            "{port}",
            "--model",
            "simulated",
            "--name",
            "{name}",
            *arguments,
        ]
        return EngineSpec(
            name=name,
            launcher="container",
            model=model,
            pool="cpu",
            members=(Member(node="node1", cards=tuple(cards)),) if cards else (),
            settings={
                "image": IMAGE,
                "command": command,
                "shm_size": "64m",
                "ready_timeout_s": 30,
                "stop_timeout_s": 5,
                **settings,
            },
        )

    return make


@pytest.fixture
def served():
    """Start tiny servers that no launcher knows of; return their URL."""
    with ExitStack() as running:

        def start(*arguments):
            port = free_port()
            process = running.enter_context(
                subprocess.Popen([sys.executable, str(SERVER), "--port", str(port), *arguments])
            )
            running.callback(process.kill)
            return f"http://127.0.0.1:{port}"

        yield start


@pytest.fixture
def owner():
    """Start a process that launches an engine and waits; return it and what it told about the engine."""
    with ExitStack() as running:

        def start(spec, log_dir, *, wait=True):
            plan = {
                "name": spec.name,
                "launcher": spec.launcher,
                "model": spec.model,
                "settings": dict(spec.settings),
            }
            process = running.enter_context(
                subprocess.Popen(
                    [sys.executable, str(HERE / "owner.py"), json.dumps(plan), str(log_dir)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "plugins"), *sys.path[1:]])},
                )
            )
            running.callback(process.kill)
            if not wait:
                return process, {}
            line = process.stdout.readline()
            return process, json.loads(line) if line else pytest.fail(process.stderr.read().decode())

        yield start


@pytest.fixture
def gone():
    """Return whether a process exists no more."""

    def look(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            return True

    return look


def _script(name):
    done = subprocess.run(
        ["sh", str(HERE.parent / "images" / name)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PYTHON": sys.executable},
    )
    if done.returncode:
        pytest.fail(f"the Docker tests cannot run: {done.stderr.strip()[-2000:]}", pytrace=False)


@pytest.fixture(scope="session")
def docker_image():
    """Make sure that a daemon answers and has the image; fails, and never skips, where it cannot be had."""
    _script("start_docker.sh")
    _script("build.sh")
    return IMAGE


@pytest.fixture
def docker_client(docker_image):
    import docker

    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def daemon_without_hook(tmp_path_factory, until):
    """Start a second daemon whose PATH has no NVIDIA hook; return its address."""
    folder = tmp_path_factory.mktemp("daemon")
    socket = folder / "docker.sock"
    bare = "/usr/sbin:/usr/bin:/sbin:/bin"
    # In a network of its own: a daemon without a bridge removes the one that the first daemon uses.
    command = [
        "unshare",
        "--net",
        "dockerd",
        "--host",
        f"unix://{socket}",
        "--data-root",
        str(folder / "data"),
    ]
    command += ["--exec-root", str(folder / "exec"), "--pidfile", str(folder / "pid")]
    command += ["--bridge", "none", "--iptables=false", "--ip-forward=false", "--storage-driver", "vfs"]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PATH": bare})
    try:
        until(lambda: daemon.poll() is not None or b"API listen" in (folder / "log").read_bytes(), limit_s=60)
        if daemon.poll() is not None:
            pytest.fail(f"a second dockerd does not start: {(folder / 'log').read_text()[-2000:]}")
        subprocess.run(
            ["docker", "--host", f"unix://{socket}", "import", "-", "empty:local"],
            input=b"\0" * 1024,  # an empty tar: the refusal comes before anything in it is wanted
            check=True,
            capture_output=True,
            timeout=60,
        )
        yield f"unix://{socket}"
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(timeout=30)
