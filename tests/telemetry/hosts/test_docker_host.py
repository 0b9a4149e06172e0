"""A node that is asked through the Docker daemon that is installed here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rackgate.hosts.docker_host import DockerHost, DockerRunner
from rackgate.hosts.facts.host import read_host
from rackgate.hosts.runner import Command, LocalRunner
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node, NodeAccess
from rackgate.nouns.target import Target
from rackgate.telemetry.assembly import assemble, plan_of

ROOT = Path(__file__).parents[3]
DAEMON = "unix:///var/run/docker.sock"
IMAGE = "rackgate-simulated-engine:local"

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module", autouse=True)
def images():
    """Make sure that a daemon answers and has the image; fails, and never skips, without them."""
    for script in ("start_docker.sh", "build.sh"):
        done = subprocess.run(
            ["sh", str(ROOT / "tests" / "images" / script)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env={**os.environ, "PYTHON": sys.executable},
        )
        if done.returncode:
            pytest.fail(f"the Docker tests cannot run: {done.stderr.strip()[-2000:]}", pytrace=False)


@pytest.fixture
def runner_of():
    opened = []

    def make(daemon=DAEMON, image=IMAGE, **settings):
        opened.append(DockerRunner(DockerHost(daemon=daemon, image=image, **settings), name="n1"))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def looking():
    """Return what the daemon knows of each container that looks at a node for this process."""
    listed = subprocess.run(
        ["docker", "ps", "--all", "--quiet", "--filter", f"name=rackgate-look-{os.getpid()}-"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    if not listed:
        return []
    done = subprocess.run(["docker", "inspect", *listed], capture_output=True, check=False, timeout=60)
    return json.loads(done.stdout)


def test_facts_through_a_container_are_those_of_the_host(runner_of):
    there, here = read_host(runner_of(), 30.0), read_host(LocalRunner(), 30.0)
    same = ("kernel", "os", "nvidia_loaded", "memory_kib", "shm_bytes", "docker_runtimes")
    assert {name: here[name].value for name in same} == {name: there[name].value for name in same}


def test_the_container_may_do_nothing_but_look_and_is_gone_afterwards(runner_of, tmp_path):
    (tmp_path / "model").write_text("words")
    runner = runner_of()
    assert "words" == runner.run(Command(argv=("cat", f"{tmp_path}/model")), 30.0).text
    refused = runner.run(Command(argv=("touch", f"{tmp_path}/new")), 30.0)
    assert (1, False) == (refused.status, (tmp_path / "new").exists())
    mine = [one for one in looking() if one["State"]["Running"]]
    limits = mine[0]["HostConfig"]
    assert (["ALL"], True, False) == (limits["CapDrop"], limits["ReadonlyRootfs"], limits["Privileged"])
    assert "no-new-privileges" in limits["SecurityOpt"]
    assert ["SYS_CHROOT"] == [name.removeprefix("CAP_") for name in limits["CapAdd"]]
    runner.close()
    assert {one["Id"] for one in mine} & {one["Id"] for one in looking()} == set()


def test_a_container_that_was_removed_is_started_again(runner_of):
    runner = runner_of()
    first = runner.read(["/proc/sys/kernel/osrelease"], 30.0)
    for one in looking():
        subprocess.run(["docker", "rm", "-f", one["Id"]], check=True, timeout=60, capture_output=True)
    runner.run(Command(argv=("true",)), 30.0)
    assert first == runner.read(["/proc/sys/kernel/osrelease"], 30.0)


def test_a_command_that_hangs_ends_at_its_deadline_and_a_missing_one_is_told(runner_of):
    runner = runner_of()
    assert runner.run(Command(argv=("true",)), 30.0).ok
    hung = runner.run(Command(argv=("sleep", "600")), 1.0)
    assert (Reason.TIMEOUT, True) == (hung.reason, "sleep" in hung.detail)
    missing = runner.run(Command(argv=("no-such-tool",)), 30.0)
    assert (Reason.TOOL_MISSING, "no-such-tool is not installed on n1") == (missing.reason, missing.detail)


@pytest.mark.parametrize(
    ("settings", "reason", "cure"),
    [
        ({"image": "no-such-image:local"}, Reason.ABSENT, "docker pull"),
        ({"daemon": "unix:///nonexistent.sock"}, Reason.UNREACHABLE, "no daemon answers"),
        ({"daemon": "no-such-context"}, Reason.NOT_CONFIGURED, "docker context ls"),
    ],
)
def test_a_daemon_that_cannot_help_says_why(runner_of, settings, reason, cure):
    ran = runner_of(**settings).run(Command(argv=("true",)), 30.0)
    assert (reason, True) == (ran.reason, cure in ran.detail), ran.detail


def test_a_node_of_a_target_is_read_through_its_daemon_by_one_container(images):
    access = NodeAccess(docker=DAEMON, docker_image=IMAGE, cards="nvidia-smi")
    node = Node(name="n1", cards=(Card(name="n1/gpu0", node="n1", index=0),), access=access)
    target = Target(name="rack", model="m", grade="accelerator", nodes=(node,))
    before = len(looking())
    sources = assemble(target, plan_of(target))
    try:
        cards, host, _ = (source.poll() for source in sources)
        assert 1 == len(looking()) - before
    finally:
        for source in sources:
            source.close()
    assert {Reason.TOOL_MISSING} == {one.reason for one in cards}  # this machine has no driver
    assert next(one.value for one in host if one.field == "host_memory_available_mib") > 0
