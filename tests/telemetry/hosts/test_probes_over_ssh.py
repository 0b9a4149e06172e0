"""Probes on a node that is reached by a real OpenSSH server."""

import json
import time
from dataclasses import replace

import pytest
from ssh_server import SERVER, ssh_servers

from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node, NodeAccess
from rackgate.nouns.slo import Scope
from rackgate.nouns.target import EngineSpec, Target
from rackgate.probes.probe import Probe
from rackgate.probes.running import run_on_nodes

pytestmark = pytest.mark.slow

VALUE = {"name": "speed", "entity": "gpu0", "value": 3.5, "unit": "GB/s"}
GOOD = json.dumps({"version": 1, "complete": True, "values": [VALUE]})


@pytest.fixture(scope="module")
def rack(tmp_path_factory):
    if SERVER is None:
        pytest.fail("openssh-server is missing: make system")
    with ssh_servers(tmp_path_factory.mktemp("ssh")) as running:
        nodes = tuple(
            Node(
                name=name, cards=(Card(name=f"{name}/gpu0", node=name, index=0),), access=NodeAccess(ssh=name)
            )
            for name in ("node", "behind")
        )
        engine = EngineSpec(name="e", launcher="remote", model="m")
        yield Target(
            name="lab",
            model="m",
            grade="accelerator",
            nodes=nodes,
            engines=(engine,),
            ssh_config=str(running.config),
        )


def probe(*command, **facts):
    known = {"name": "p", "tool": "site", "scope": Scope.CARD, "values": {"speed": "GB/s"}}
    return Probe(**{**known, "command": command, "deadline_s": 20.0, **facts})


def test_nodes_behind_ssh_are_asked_and_told_by_their_names(rack):
    answers = run_on_nodes(probe("sh", "-c", f"echo {GOOD!r}"), rack, ["node", "behind"])
    assert [("node/gpu0", 3.5), ("behind/gpu0", 3.5)] == [
        (one.values[0].entity, one.values[0].value) for one in answers
    ]


def test_a_result_file_on_the_node_comes_back_over_ssh(rack):
    writes = probe("sh", "-c", f'echo a table; printf "%s" {GOOD!r} > "$0"', "{output}")
    (answer,) = run_on_nodes(writes, rack, ["node"])
    assert (3.5, "a table\n") == (answer.values[0].value, answer.errors)


@pytest.mark.parametrize(
    ("command", "reason", "seen"),
    [
        (("no-such-tool",), Reason.TOOL_MISSING, "no-such-tool is not installed on node"),
        (("sh", "-c", "kill -9 $$"), Reason.UNREACHABLE, "a signal ended the command"),
        (("true",), Reason.BLANK, "no output"),
        (("sh", "-c", "echo all good"), Reason.UNSUPPORTED, "'all good'"),
    ],
)
def test_what_is_no_evidence_over_ssh_is_unknown(rack, command, reason, seen):
    (answer,) = run_on_nodes(probe(*command), rack, ["node"])
    assert reason is answer.reason
    assert seen in answer.detail


def test_a_node_that_falls_silent_or_is_not_there_does_not_hold_the_others(rack):
    started = time.monotonic()
    lost = replace(rack.nodes[1], access=NodeAccess(ssh="nowhere.invalid"))
    silent = probe("sh", "-c", "echo begun; sleep 60", silence_s=4.0, deadline_s=50.0)
    here, gone = run_on_nodes(silent, replace(rack, nodes=(rack.nodes[0], lost)), ["node", "behind"])
    assert time.monotonic() - started < 30
    assert (Reason.TIMEOUT, True) == (
        here.reason,
        "printed nothing for 4 s; seen last: 'begun'" in here.detail,
    )
    assert gone.reason is Reason.UNREACHABLE
