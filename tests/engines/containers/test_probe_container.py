"""A probe in a real container on the node."""

import json

import pytest

from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Node, NodeAccess
from rackgate.nouns.slo import Scope
from rackgate.nouns.target import EngineSpec, Target
from rackgate.probes.probe import Probe
from rackgate.probes.running import run_on_nodes

pytestmark = pytest.mark.docker
VALUE = {"name": "speed", "entity": "node", "value": 3.5, "unit": "GB/s"}
GOOD = json.dumps({"version": 1, "complete": True, "values": [VALUE]})


@pytest.fixture
def ask(docker_image):
    """Ask a node without cards: there is no accelerator that a container here could be given."""

    def ask(line, **facts):
        known = {"name": "p", "tool": "site", "scope": Scope.NODE, "values": {"speed": "GB/s"}}
        probe = Probe(
            **{**known, "command": ("sh", "-c", line), "where": "container", "image": docker_image, **facts}
        )
        node = Node(name="node1", access=NodeAccess(local=True))
        engine = EngineSpec(name="e", launcher="remote", model="m")
        target = Target(name="lab", model="m", grade="cpu", nodes=(node,), engines=(engine,))
        (answer,) = run_on_nodes(probe, target, ["node1"])
        return answer

    return ask


def test_a_program_in_a_container_is_read_like_one_of_the_host(ask):
    assert 3.5 == ask(f"echo {GOOD!r}").values[0].value
    writes = ask("exit 3")
    assert (Reason.DIED, 3) == (writes.reason, writes.status)


def test_a_program_that_does_not_end_leaves_no_container(ask, docker_client, until):
    answer = ask("echo begun; sleep 300", deadline_s=3.0, options=("--label", "rackgate-test=probe"))
    assert Reason.TIMEOUT is answer.reason
    until(lambda: not docker_client.containers.list(filters={"label": "rackgate-test=probe"}))


def test_an_image_that_is_not_there_is_told(ask):
    answer = ask("true", image="rackgate-no-such-image:none", options=("--pull", "never"))
    assert Reason.DIED is answer.reason
    assert "rackgate-no-such-image" in answer.detail
