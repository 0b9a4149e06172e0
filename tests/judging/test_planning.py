"""Rows x entities: nothing that was asked is left out, and no identity stands twice."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackgate.checks.plan import CONDITIONS, _facts, plan_checks
from rackgate.checks.selection import select, unknown_entities
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.entities import entities_of, members_of
from rackgate.nouns.slo import STAGES, Op, Scope, Slo

METRICS = shipped_registry().metrics


def row(row_id="single_card.ttft", scope=Scope.CARD, **changes):
    facts = {
        "id": row_id,
        "stage": row_id.split(".")[0],
        "metric": "ttft_ms",
        "statistic": "p99",
        "op": Op.AT_MOST,
        "bound": 1.0,
        "unit": "ms",
        "scope": scope,
        "source": "s",
    }
    return Slo(**{**facts, **changes})


@given(st.integers(1, 4), st.integers(1, 5), st.lists(st.sampled_from(list(Scope)), min_size=1, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_each_row_gets_a_check_for_each_entity_and_no_identity_stands_twice(rack, nodes, cards, scopes):
    target = rack(nodes, cards)
    rows = [row(f"single_card.row{index}", scope) for index, scope in enumerate(scopes)]
    checks = plan_checks(target, rows, metrics=METRICS, probes={})
    assert len(checks) == len({check.id for check in checks})
    for one in rows:
        entities = [check.entity for check in checks if check.slo is one]
        assert (list(entities_of(one.scope, target)) or ["rack"]) == entities


@pytest.mark.parametrize(("exporter", "asked"), [(None, False), ("http://n:9400/metrics", True)])
def test_a_node_without_cards_is_asked_for_others_only_where_something_lists_them(exporter, asked):
    from rackgate.nouns.node import Node
    from rackgate.nouns.target import EngineSpec, Target

    engine = EngineSpec(name="e", launcher="remote", model="m", pool="cpu")
    target = Target(
        name="rack", model="m", grade="cpu", nodes=(Node(name="n", exporter_url=exporter),), engines=(engine,)
    )
    (check,) = plan_checks(
        target,
        [row("preflight.undeclared", Scope.NODE, metric="undeclared_cards")],
        metrics=METRICS,
        probes={},
    )
    assert asked == (not check.declared_absent)


def test_stages_come_in_their_order_whatever_the_file_says():
    from rackgate.nouns.target import Target

    rows = [row(f"{stage}.r", Scope.RACK) for stage in reversed(STAGES)]
    target = Target(name="t", model="m", grade="cpu")
    assert list(STAGES) == [
        check.slo.stage for check in plan_checks(target, rows, metrics=METRICS, probes={})
    ]


def test_only_the_asked_stages_are_planned(rack):
    rows = [row(f"{stage}.r", Scope.RACK) for stage in STAGES]
    assert ["soak"] == [
        check.slo.stage for check in plan_checks(rack(), rows, ("soak",), metrics=METRICS, probes={})
    ]


def test_a_row_for_another_model_judges_nobody_and_the_gap_is_unknown(rack):
    narrow = row(applies_to={"tensor_parallel": ("8",)})
    checks = plan_checks(rack(), [narrow], metrics=METRICS, probes={})
    assert {"no row for ttft_ms p99 applies here: tensor_parallel in 8"} == {
        check.undecidable for check in checks
    }


def test_a_row_that_applies_answers_for_the_one_that_does_not(rack):
    rows = [row("single_card.a", applies_to={"tensor_parallel": ("8",)}), row("single_card.b")]
    checks = plan_checks(rack(), rows, metrics=METRICS, probes={})
    assert {("single_card.b", "")} == {(check.slo.id, check.undecidable) for check in checks}


def test_two_rows_that_do_not_apply_leave_one_gap_not_two(rack):
    rows = [row(f"single_card.{name}", applies_to={"model": (name,)}) for name in "ab"]
    checks = plan_checks(rack(1, 1), rows, metrics=METRICS, probes={})
    assert ["single_card.a @ node1/gpu0"] == [check.id for check in checks]


def test_what_is_not_visible_from_here_is_not_assessed(rack):
    checks = plan_checks(rack(vantage="tenant"), [row(vantage="operator")], metrics=METRICS, probes={})
    assert all(
        check.not_assessed.startswith("not assessed from here: needs vantage operator") for check in checks
    )


@pytest.mark.parametrize(
    ("stage", "facts", "why"),
    [
        ("two_card", {"cards": 1}, "no node with two single-card engines"),
        ("cross_node", {"gateway": False}, "no gateway over two nodes"),
        ("cross_node", {"nodes": 1}, "no gateway over two nodes"),
        ("fault_injection", {"may_break": ()}, "does not allow engines to be broken"),
        ("fault_injection", {"nodes": 1, "cards": 1}, "no gateway over two engines"),
    ],
)
def test_what_the_target_does_not_have_is_declared(rack, stage, facts, why):
    (check,) = plan_checks(rack(**facts), [row(f"{stage}.r", Scope.RACK)], metrics=METRICS, probes={})
    assert why in check.declared_absent


def test_what_an_endpoint_user_cannot_see_is_not_assessed_even_where_nothing_is_declared():
    from rackgate.nouns.target import EngineSpec, Target

    engine = EngineSpec(name="endpoint", launcher="remote", model="m", url="http://h:1")
    target = Target(name="t", model="m", grade="unproven", engines=(engine,), vantage="endpoint")
    rows = [
        row("preflight.card_present", vantage="operator"),
        row("fault_injection.recovery", Scope.RACK, vantage="operator"),
        row("cross_node.latency", Scope.NODE),
    ]
    checks = {check.slo.id: check for check in plan_checks(target, rows, metrics=METRICS, probes={})}
    unseen = "not assessed from here: needs vantage operator, target t declares endpoint"
    assert {
        "preflight.card_present": (unseen, ""),
        "fault_injection.recovery": (unseen, ""),
        "cross_node.latency": ("", "target t declares no gateway over two nodes"),
    } == {name: (check.not_assessed, check.declared_absent) for name, check in checks.items()}


def test_a_card_that_no_engine_uses_takes_part_in_no_load_and_is_declared_so(rack):
    from dataclasses import replace

    whole = rack(nodes=1, cards=2)
    target = replace(whole, engines=whole.engines[:1])
    rows = [row("preflight.card_present"), row("single_card.temperature", load="interactive")]
    unused = "declared: no engine of the target uses this card"
    assert {
        "preflight.card_present @ node1/gpu0": "",
        "preflight.card_present @ node1/gpu1": "",
        "single_card.temperature @ node1/gpu0": "",
        "single_card.temperature @ node1/gpu1": unused,
    } == {check.id: check.declared_absent for check in plan_checks(target, rows, metrics=METRICS, probes={})}
    nameless = replace(whole, engines=tuple(replace(engine, members=()) for engine in whole.engines))
    assert {""} == {
        check.declared_absent for check in plan_checks(nameless, rows, metrics=METRICS, probes={})
    }


def test_the_conditions_of_a_row_are_the_facts_that_there_are(rack):
    from dataclasses import replace

    target = rack()
    first = target.nodes[0]
    cards = (replace(first.cards[0], sku="H200"), *first.cards[1:])
    target = replace(target, nodes=(replace(first, cards=cards), *target.nodes[1:]))
    assert set(CONDITIONS) == set(_facts("node1/gpu0", target))


@given(st.integers(1, 4), st.integers(1, 4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_the_members_of_a_node_are_the_engines_on_it(rack, nodes, cards):
    target = rack(nodes, cards)
    assert {engine.entity for engine in target.engines} == members_of("rack", target)
    for node in target.nodes:
        assert {card.name for card in node.cards} == members_of(node.name, target)


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_a_selection_keeps_or_names_every_card(rack, data):
    target = rack(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
    names = [node.name for node in target.nodes] + [card.name for card in target.cards]
    names += [engine.name for engine in target.engines]
    only = data.draw(st.lists(st.sampled_from(names), max_size=3))
    exclude = data.draw(st.lists(st.sampled_from(names), max_size=3))
    selection = select(target, only=only, exclude=exclude)
    kept = {card.name for card in selection.target.cards}
    assert {card.name for card in target.cards} == kept | set(selection.left_out)
    assert not kept & set(selection.left_out)
    assert {card for engine in selection.target.engines for card in engine.cards} <= kept
    assert not {card for card in kept if card in exclude or card.split("/")[0] in exclude}


def test_names_that_the_target_does_not_know_are_returned(rack):
    assert ("gpu9",) == unknown_entities(rack(), ("node1", "gpu9", "node2/gpu1"))[0]
