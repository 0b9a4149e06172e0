"""A rack of nodes that are all this machine, and programs that a test writes."""

import pytest

from rackgate.nouns.node import Card, Node, NodeAccess
from rackgate.nouns.slo import Scope
from rackgate.nouns.target import EngineSpec, Member, Target
from rackgate.probes.probe import Probe


@pytest.fixture
def rack():
    """Make a target of so many nodes with two cards each, all of them this machine."""

    def rack(nodes=2, launcher="remote", **access):
        made = tuple(
            Node(
                name=f"node{number}",
                cards=tuple(
                    Card(name=f"node{number}/gpu{index}", node=f"node{number}", index=index)
                    for index in (0, 1)
                ),
                access=NodeAccess(**(access or {"local": True})),
            )
            for number in range(1, nodes + 1)
        )
        engine = EngineSpec(
            name="vllm-0",
            launcher=launcher,
            model="m",
            members=(Member(node="node1", cards=("node1/gpu0",)),),
        )
        return Target(name="lab", model="m", grade="accelerator", nodes=made, engines=(engine,))

    return rack


@pytest.fixture
def probe():
    """Make a probe of the site's own that runs a shell line."""

    def probe(line="", **facts):
        known = {"name": "p", "tool": "site", "scope": Scope.NODE, "values": {"speed": "GB/s"}}
        return Probe(**{**known, "command": ("sh", "-c", line) if line else (), "deadline_s": 5.0, **facts})

    return probe
