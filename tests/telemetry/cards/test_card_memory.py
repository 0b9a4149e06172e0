from dataclasses import replace

import pytest

from rackgate.nouns.measurement import Measurement, Reason, missing, truth
from rackgate.nouns.node import Card, Node
from rackgate.nouns.peers import too_few_peers
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.nouns.target import EngineSpec, Member, Target
from rackgate.preflight.card_memory import MEMORY_IN_USE, unaccounted_memory

NAMES = ("n1/gpu0", "n1/gpu1", "n1/gpu2")


def target_of(launcher):
    cards = tuple(Card(name=name, node="n1", index=place, sku="H200") for place, name in enumerate(NAMES))
    engines = tuple(
        EngineSpec(
            name=f"e{card.index}",
            launcher=launcher,
            model="m",
            members=(Member(node="n1", cards=(card.name,)),),
        )
        for card in cards
    )
    nodes = (Node(name="n1", cards=cards),)
    return Target(name="rack", model="m", grade="accelerator", nodes=nodes, engines=engines)


def in_use(card, mib):
    return {
        (MEMORY_IN_USE, card): Measurement(metric=MEMORY_IN_USE, entity=card, value=mib, unit="MiB", count=1)
    }


def probes(*used, answering=NAMES):
    found = {}
    for card, mib in zip(NAMES, used, strict=True):
        found |= in_use(card, mib)
        found["engine_reachable", card] = truth("engine_reachable", card, card in answering, "")
    return found


def values(found):
    return [found[MEMORY_IN_USE, card].value for card in NAMES]


def test_under_engines_that_were_there_the_median_of_the_peers_is_the_engines():
    found = unaccounted_memory(target_of("remote"), probes(100_000.0, 100_400.0, 120_000.0))
    assert values(found) == [0.0, 0.0, 19_800.0]
    assert found[MEMORY_IN_USE, "n1/gpu2"].detail == (
        "120000 MiB are in use, 100200 MiB is the median of 2 peers"
    )


def test_a_peer_whose_engine_is_gone_makes_no_card_guilty():
    seen = probes(100_000.0, 0.0, 0.0, answering=("n1/gpu0",))
    found = unaccounted_memory(target_of("remote"), seen)[MEMORY_IN_USE, "n1/gpu0"]
    assert (found.value, found.reason) == (None, Reason.TOO_FEW)
    assert "0 peers say what their engines hold" in found.detail


def test_before_this_run_starts_engines_all_memory_counts():
    before = {**in_use(NAMES[0], 3.0), **in_use(NAMES[1], 20_480.0), **in_use(NAMES[2], 0.0)}
    found = unaccounted_memory(target_of("process"), probes(90_000.0, 110_480.0, 90_000.0), before)
    assert values(found) == [3.0, 20_480.0, 0.0]


def test_a_card_that_no_engine_uses_has_nothing_to_hold():
    rack = replace(target_of("remote"), engines=())
    assert values(unaccounted_memory(rack, probes(1.0, 2000.0, 3.0))) == [1.0, 2000.0, 3.0]


def test_what_was_not_read_stays_unread():
    seen = probes(1.0, 2.0, 3.0)
    seen[MEMORY_IN_USE, NAMES[0]] = missing(MEMORY_IN_USE, NAMES[0], "MiB", Reason.BLANK, "DCGM's blank")
    found = unaccounted_memory(target_of("remote"), seen)
    assert found[MEMORY_IN_USE, NAMES[0]].reason == Reason.BLANK
    assert found[MEMORY_IN_USE, NAMES[1]].reason == Reason.TOO_FEW
    assert unaccounted_memory(target_of("remote"), {}) == {}


@pytest.mark.parametrize(
    ("launcher", "cards", "asked"), [("remote", 2, False), ("remote", 3, True), ("process", 1, True)]
)
def test_too_few_peers_are_declared_only_where_they_are_needed(launcher, cards, asked):
    whole = target_of(launcher)
    node = replace(whole.nodes[0], cards=whole.nodes[0].cards[:cards])
    rack = replace(whole, nodes=(node,), engines=whole.engines[:cards])
    row = Slo(
        id="preflight.memory_in_use",
        stage="preflight",
        metric=MEMORY_IN_USE,
        statistic="value",
        op=Op.AT_MOST,
        bound=1024.0,
        unit="MiB",
        scope=Scope.CARD,
        source="test",
    )
    assert asked == (too_few_peers(row, NAMES[0], rack) == "")
