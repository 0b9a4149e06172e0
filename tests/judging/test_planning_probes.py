"""Which probes a target keeps from being asked, and what is said where no floor fits."""

from dataclasses import replace

import pytest

from rackgate.checks.plan import plan_checks
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.node import NodeAccess
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.probes.probe import Probe

METRICS = shipped_registry().metrics


def row(scope=Scope.CARD, value="speed", **facts):
    known = {
        "id": "preflight.tool",
        "stage": "preflight",
        "metric": f"probe.tool.{value}",
        "statistic": "value",
    }
    bound = {"op": Op.AT_LEAST, "bound": 1.0, "unit": "GB/s", "scope": scope, "source": "s"}
    return Slo(**{**known, **bound, **facts})


def probe(**facts):
    return Probe(
        **{"name": "tool", "tool": "site", "scope": Scope.CARD, "values": {"speed": "GB/s"}, **facts}
    )


@pytest.fixture
def checks(rack):
    """Plan one row for a rack whose hosts are opened, or as `change` says."""

    def checks(probe, row, change=lambda node: node, nodes=2, cards=2):
        target = rack(nodes, cards)
        opened = tuple(change(replace(node, access=NodeAccess(local=True))) for node in target.nodes)
        return plan_checks(replace(target, nodes=opened), [row], metrics=METRICS, probes={"tool": probe})

    return checks


def test_a_closed_host_is_declared_and_a_probe_that_runs_here_needs_none(checks):
    def closed(node):
        return replace(node, access=NodeAccess())

    told = {check.declared_absent for check in checks(probe(), row(), closed)}
    assert {"no way into the host of node1", "no way into the host of node2"} == {
        text.split("declares ")[1].split(" (")[0].replace(" ([node.telemetry] local, ssh or docker)", "")
        for text in told
    }
    assert {""} == {check.declared_absent for check in checks(probe(where="here"), row(), closed)}
    assert {""} == {check.declared_absent for check in checks(probe(result="f.json"), row(), closed)}


def test_a_tool_of_another_vendor_is_declared_absent(checks):
    amd = probe(vendor="amd")
    assert {"declared: node1/gpu0 has no card of amd's"} == {
        check.declared_absent for check in checks(amd, row(), nodes=1, cards=1)
    }

    def mixed(node):
        return replace(node, cards=(replace(node.cards[0], vendor="amd"), *node.cards[1:]))

    asked = [check.entity for check in checks(amd, row(), mixed, nodes=1) if not check.declared_absent]
    assert ["node1/gpu0"] == asked


def test_a_probe_of_other_cards_or_of_more_nodes_is_declared_absent(checks):
    def told(probe, **facts):
        return {check.declared_absent for check in checks(probe, row(), **facts)}

    assert {"declared: node1/gpu0 has no card of GB200, GB300"} == told(
        probe(skus=("GB200", "GB300")), nodes=1, cards=1
    )
    assert {"target lab declares fewer than 4 nodes"} == told(probe(nodes=4), nodes=3)
    assert {""} == told(probe(nodes=4), nodes=4)


def test_a_comparison_needs_another_one(checks):
    shares = probe(values={"speed": "GB/s", "part": "ratio"}, shares={"part": "speed"})
    one = checks(shares, row(value="part"), nodes=1, cards=1)
    assert ["target lab declares one card: there is no other one"] == [check.declared_absent for check in one]
    assert {""} == {check.declared_absent for check in checks(shares, row(value="part"), nodes=1, cards=2)}
    pairs = probe(scope=Scope.NODE, peer_command=("listen",))
    assert "declares one node" in checks(pairs, row(Scope.NODE), nodes=1)[0].declared_absent
    few = probe(scope=Scope.NODE, least_cards={"speed": 2})
    assert "fewer than 2 cards" in checks(few, row(Scope.NODE), nodes=1, cards=1)[0].declared_absent


def test_a_sku_without_a_floor_is_unknown_and_named(checks):
    h100 = row(applies_to={"sku": ("H100",)})
    (bare,) = checks(probe(), h100, nodes=1, cards=1)
    assert "no floor known for sku not declared: no row for probe.tool.speed names it" == bare.undecidable

    def of(sku):
        return lambda node: replace(node, cards=tuple(replace(card, sku=sku) for card in node.cards))

    assert "sku L40S" in checks(probe(), h100, of("L40S"), nodes=1, cards=1)[0].undecidable
    assert "" == checks(probe(), h100, of("H100"), nodes=1, cards=1)[0].undecidable
