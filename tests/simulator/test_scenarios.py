from __future__ import annotations

import tomllib

import pytest

from rackgate.nouns.verdict import Verdict
from rackgate.simulator.rack import start_rack
from rackgate.simulator.scenarios import parse_scenarios, scenarios
from rackgate.simulator.settings import RackSettings, simulated_target

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", scenarios())
def test_every_scenario_starts_and_tells_its_urls(name):
    nodes, cards = (int(part) for part in (scenarios()[name].size or "2x2").split("x"))
    with start_rack(RackSettings(nodes=nodes, cards=cards, scenario=name)) as rack:
        assert rack.scenario.summary
        assert [engine.entity for engine in rack.engines] == [card.name for card in rack.target.cards]
        assert all(engine.url.startswith("http://") for engine in rack.engines)
        assert all(node.exporter_url for node in rack.target.nodes)
        assert rack.target.gateway.url


def test_the_target_is_known_before_the_rack_runs():
    settings = RackSettings(nodes=3, cards=4)
    target = simulated_target(settings)
    assert target == simulated_target(settings)
    assert [node.name for node in target.nodes] == ["node1", "node2", "node3"]
    assert target.engines[-1].entity == "node3/gpu3"
    assert {engine.launcher for engine in target.engines} == {"simulated"}
    assert (target.grade, target.may_break, target.vantage) == ("simulated", ("engine",), "operator")
    assert target.node_of("node2/gpu1") == "node2"
    assert len({card.uuid for card in target.cards} | {card.serial for card in target.cards}) == 24


def test_a_scenario_that_does_not_fit_the_rack_is_refused():
    with pytest.raises(ValueError, match="'slow_card' needs node1/gpu1; a rack of 1x1 has none"):
        simulated_target(RackSettings(nodes=1, cards=1, scenario="slow_card"))


def test_an_unknown_scenario_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown scenario 'slow'; known are healthy, slow_card"):
        simulated_target(RackSettings(scenario="slow"))


def test_all_problems_of_a_file_are_told_at_once():
    text = """
    [a]
    summary = "x"
    colour = "red"
    [b]
    summary = "x"
    [b.cards."*"]
    decode_slowness = 2.0
    [c]
    summary = "x"
    instrument = "sleepy"
    [d]
    summary = "x"
    [[d.proofs]]
    stage = "single_card"
    verdict = "PASS"
    checks = []
    entity = "rack"
    cause = "none"
    """
    with pytest.raises(ValueError, match="unknown colour") as problem:
        parse_scenarios(tomllib.loads(text))
    message = str(problem.value)
    assert "b.cards.*: unknown decode_slowness" in message
    assert "'sleepy' is none of slow, die" in message
    assert "PASS proves nothing" in message


def test_a_proof_names_stage_verdict_checks_entity_and_cause():
    proof = scenarios()["slow_card"].proofs[0]
    assert (proof.stage, proof.verdict, proof.entity) == ("single_card", Verdict.FAIL, "node1/gpu1")
    assert proof.checks
    assert proof.cause
