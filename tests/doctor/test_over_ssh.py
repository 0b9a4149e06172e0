"""Hosts behind a real OpenSSH server."""

import pytest
from ssh_server import SERVER, ssh_servers

from rackgate.doctor.forecast import Outlook
from rackgate.nouns.node import Node, NodeAccess
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.nouns.target import Target

OFFSET = Slo(
    id="preflight.clock_offset",
    stage="preflight",
    metric="clock_offset_s",
    statistic="value",
    op=Op.AT_MOST,
    bound=0.01,
    unit="s",
    scope=Scope.NODE,
    source="test",
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    if SERVER is None:
        pytest.fail("openssh-server is missing: make system")
    with ssh_servers(tmp_path_factory.mktemp("ssh")) as running:
        yield running


def test_a_host_is_read_and_one_that_lets_nobody_in_is_told_with_the_way_to_try_it(forecasts, servers):
    nodes = tuple(
        Node(name=name, access=NodeAccess(ssh=where)) for name, where in (("n1", "node"), ("n2", "nowhere"))
    )
    target = Target(name="rack", model="m", grade="unproven", nodes=nodes, ssh_config=str(servers.config))
    found = forecasts(target, [OFFSET], deadline_s=20.0)
    reached, lost = (found[f"preflight.clock_offset @ {name}"] for name in ("n1", "n2"))
    assert reached.outlook is Outlook.RUN or "chronyc" in reached.because
    assert Outlook.UNKNOWN == lost.outlook
    assert "ssh -o BatchMode=yes" in lost.cure
