"""Who is compared with whom, and whom nobody is like."""

import pytest

from rackgate.checks.plan import plan_checks
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.node import Card, Node
from rackgate.nouns.peers import peers_of
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.nouns.target import EngineSpec, Member, Target

METRICS = shipped_registry().metrics


def target(*engines):
    """Make one node with an engine of each (SKU, number of cards, model)."""
    cards, specs = [], []
    for number, (sku, count, model) in enumerate(engines):
        own = [
            Card(name=f"n1/gpu{len(cards) + index}", node="n1", index=len(cards) + index, sku=sku)
            for index in range(count)
        ]
        cards += own
        held = Member(node="n1", cards=tuple(card.name for card in own))
        specs.append(EngineSpec(name=f"e{number}", launcher="remote", model=model, members=(held,)))
    return Target(
        name="t",
        model="m",
        grade="accelerator",
        nodes=(Node(name="n1", cards=tuple(cards)),),
        engines=tuple(specs),
    )


def absent(rack, metric, scope=Scope.CARD):
    row = Slo(
        id=f"soak.{metric}",
        stage="soak",
        metric=metric,
        statistic="value",
        op=Op.AT_MOST,
        bound=1.0,
        unit="ratio",
        scope=scope,
        source="t",
        load="mix",
    )
    return {
        check.entity: bool(check.declared_absent)
        for check in plan_checks(rack, [row], metrics=METRICS, probes={})
    }


def test_peers_are_cards_of_one_kind_under_engines_of_one_size_and_model():
    rack = target(
        ("H100", 1, "m"), ("H100", 1, "m"), ("B200", 1, "m"), ("H100", 2, "m"), ("H100", 1, "other")
    )
    assert peers_of("n1/gpu0", rack) == ("n1/gpu1",)
    assert peers_of("n1/gpu2", rack) == ()
    assert peers_of("n1/gpu3", rack) == ("n1/gpu4",)
    assert peers_of("nobody", rack) == ()


def test_a_card_with_two_others_of_its_kind_is_compared_and_the_odd_one_is_declared_absent():
    rack = target(*[("H100", 1, "m")] * 3, ("B200", 1, "m"))
    for metric in ("temperature_deviation_c", "sm_clock_to_peers", "power_deviation"):
        assert absent(rack, metric) == {
            "n1/gpu0": False,
            "n1/gpu1": False,
            "n1/gpu2": False,
            "n1/gpu3": True,
        }


@pytest.mark.parametrize("metric", ["ttft_to_peers", "tpot_to_peers"])
def test_engines_of_one_card_are_compared_and_those_of_several_are_not(metric):
    rack = target(*[("H100", 1, "m")] * 3, ("H100", 2, "m"))
    found = absent(rack, metric, Scope.ENGINE)
    assert [False, False, False, True] == list(found.values())
    assert {"rack": True} == absent(target(*[("H100", 1, "m")] * 2), metric, Scope.ENGINE)
