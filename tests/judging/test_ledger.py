"""What was asked, what was answered, and what a bad answer keeps from being tested."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackgate.checks.plan import plan_checks
from rackgate.judging.ledger import Ledger
from rackgate.judging.message import headline, scope_text
from rackgate.judging.mtbf import proven_mtbf
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.slo import STAGES, Check, Op, Scope, Severity, Slo
from rackgate.nouns.verdict import Verdict

METRICS = shipped_registry().metrics


def row(row_id, scope=Scope.CARD, **changes):
    facts = {
        "id": row_id,
        "stage": row_id.split(".")[0],
        "metric": row_id.split(".")[1],
        "statistic": "value",
        "op": Op.AT_MOST,
        "bound": 1.0,
        "unit": "ms",
        "scope": scope,
        "source": "s",
    }
    return Slo(**{**facts, **changes})


ROWS = (
    row("selfcheck.lag", Scope.RACK),
    row("preflight.reach", Scope.ENGINE),
    row("preflight.gateway_request_ok", Scope.RACK),
    row("preflight.exporter", Scope.NODE),
    row("single_card.ttft", Scope.CARD),
    row("single_card.jitter", Scope.CARD, severity=Severity.WARN),
    row("two_card.scaling", Scope.PAIR),
    row("cross_node.latency", Scope.NODE),
    row("soak.ttft", Scope.RACK),
    row("soak.temperature", Scope.CARD),
    row("fault_injection.recovery", Scope.RACK),
    row("batch_retry.lost", Scope.RACK),
)

QUALIFIED = "NOT ACCEPTED: 4 of 4 cards qualified; 0 FAIL, 0 UNKNOWN"


@pytest.fixture
def ledger(rack):
    """Play a whole run: each check asked in order, judged by `verdicts`, or gated."""

    def play(verdicts=None, target=None, **facts):
        ledger = Ledger(target=target or rack(), **facts)
        checks = plan_checks(ledger.target, ROWS, metrics=METRICS, probes={})
        for check in checks:
            ledger.plan(check)
        for check in checks:
            if check.declared_absent:
                ledger.enter(check, Verdict.UNKNOWN, skipped="declared")
            elif ledger.gated_by(check) is not None:
                ledger.enter(check, Verdict.UNKNOWN, skipped="gated")
            else:
                ledger.enter(check, (verdicts or {}).get(check.id, Verdict.PASS))
        return ledger

    return play


def gated(ledger):
    return {check for check, kind in ledger.skipped.items() if kind == "gated"}


@pytest.mark.parametrize(
    ("verdict", "stop_on_fail", "stages"),
    [
        (Verdict.FAIL, False, {"single_card", "two_card"}),
        (Verdict.UNKNOWN, False, set()),
        (Verdict.UNKNOWN, True, {"single_card", "two_card"}),
    ],
)
def test_a_probe_takes_a_card_out_by_what_it_found_and_not_by_what_it_could_not_ask(
    rack, verdict, stop_on_fail, stages
):
    tool = Check(slo=row("preflight.tool", metric="probe.tool.not_passed"), entity="node1/gpu0")
    later = [row("single_card.ttft"), row("two_card.scaling", Scope.CARD)]
    checks = [Check(slo=one, entity=f"node1/gpu{index}") for one in later for index in (0, 1)]
    played = Ledger(target=rack(), stop_on_fail=stop_on_fail)
    played.enter(tool, verdict)
    assert not played.verdict.accepted
    assert stages == {check.slo.stage for check in checks if played.gated_by(check)}


def test_all_pass_is_accepted(ledger):
    whole = ledger()
    assert (Verdict.PASS, (), set()) == (whole.verdict, whole.missing(), gated(whole))


def test_an_asked_check_without_a_verdict_is_unknown(rack):
    ledger = Ledger(target=rack())
    first, second = plan_checks(ledger.target, ROWS[:2], metrics=METRICS, probes={})[:2]
    ledger.plan(first)
    ledger.plan(second)
    ledger.enter(first, Verdict.PASS)
    assert (Verdict.UNKNOWN, (second.id,)) == (ledger.verdict, ledger.missing())
    assert 1 == ledger.counts()["UNKNOWN"]


def test_nothing_asked_is_unknown(rack):
    assert Verdict.UNKNOWN == Ledger(target=rack()).verdict


@given(st.lists(st.sampled_from(list(Verdict)), min_size=1, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_check_that_is_judged_again_keeps_its_worst_verdict(rack, verdicts):
    ledger = Ledger(target=rack())
    check = Check(slo=ROWS[4], entity="node1/gpu0")
    for verdict in verdicts:
        ledger.enter(check, verdict)
    assert max(verdicts, key=lambda one: one.badness) == ledger.verdict


@given(st.dictionaries(st.integers(0, 60), st.sampled_from(list(Verdict)), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_whatever_the_verdicts_are_each_check_has_one_and_the_worst_wins(ledger, rack, chosen):
    ids = [check.id for check in plan_checks(rack(), ROWS, metrics=METRICS, probes={})]
    verdicts = {ids[index % len(ids)]: verdict for index, verdict in chosen.items()}
    whole = ledger(verdicts)
    assert ((), len(ids)) == (whole.missing(), sum(whole.counts().values()))
    assert whole.verdict.accepted == all(verdict.accepted for verdict in verdicts.values())
    judged = {check for check in ids if check not in whole.skipped}
    assert all(whole.verdicts[check] == verdicts.get(check, Verdict.PASS) for check in judged)
    assert whole.unqualified() | whole.tested() <= set(whole.units)


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.UNKNOWN])
def test_a_card_is_quarantined_and_takes_only_its_own_along(ledger, verdict):
    whole = ledger({"single_card.ttft @ node1/gpu1": verdict})
    assert {"two_card.scaling @ node1/gpu0+gpu1", "soak.temperature @ node1/gpu1"} == gated(whole)
    assert {"node1/gpu1"} == whole.unqualified()


def test_a_node_is_quarantined_with_its_cards(ledger):
    whole = ledger({"preflight.exporter @ node2": Verdict.FAIL})
    entities = {check.split(" @ ")[1] for check in gated(whole) if check.startswith("single_card")}
    assert {"node2/gpu0", "node2/gpu1"} == entities
    assert {"node2/gpu0", "node2/gpu1"} == whole.unqualified()


def test_checks_of_the_same_stage_are_never_gated_by_each_other(ledger):
    whole = ledger({"preflight.reach @ node1/gpu0": Verdict.FAIL})
    assert not {check for check in gated(whole) if check.startswith("preflight")}


def test_a_stage_with_too_few_engines_left_is_gated(ledger, rack):
    whole = ledger({"single_card.ttft @ node1/gpu0": Verdict.FAIL}, target=rack(nodes=1, cards=2))
    assert "fault_injection.recovery @ rack" in gated(whole)


def test_no_engine_left_gates_all_that_follows(ledger, rack):
    whole = ledger({"single_card.ttft @ node1/gpu0": Verdict.FAIL}, target=rack(nodes=1, cards=1))
    assert {"soak.ttft @ rack", "soak.temperature @ node1/gpu0", "batch_retry.lost @ rack"} == gated(whole)


def test_the_gateway_gates_the_stages_behind_it(ledger):
    whole = ledger({"preflight.gateway_request_ok @ rack": Verdict.UNKNOWN})
    assert {"cross_node", "soak", "fault_injection", "batch_retry"} == {
        one.split(".")[0] for one in gated(whole)
    }


def test_the_instrument_gates_everything(ledger):
    whole = ledger({"selfcheck.lag @ rack": Verdict.UNKNOWN})
    assert set(STAGES[1:]) == {one.split(".")[0] for one in gated(whole)}
    assert (1, frozenset()) == (whole.judged, whole.tested())


def test_stopping_on_the_first_fail_gates_every_later_stage(ledger):
    whole = ledger({"two_card.scaling @ node1/gpu0+gpu1": Verdict.FAIL}, stop_on_fail=True)
    assert set(STAGES[4:]) == {one.split(".")[0] for one in gated(whole)}


def test_a_warn_row_closes_no_gate(ledger):
    whole = ledger({"single_card.jitter @ node1/gpu1": Verdict.UNKNOWN})
    assert ([], Verdict.UNKNOWN) == (whole.gates, whole.verdict)


def test_an_engine_over_many_cards_disqualifies_all_of_them(ledger, rack):
    whole = ledger(
        {"preflight.reach @ node1-engine0": Verdict.FAIL}, target=rack(nodes=2, cards=4, per_engine=4)
    )
    assert {f"node1/gpu{index}" for index in range(4)} == whole.unqualified()
    assert "NOT ACCEPTED: 4 of 8 cards qualified; 1 FAIL" in headline(
        whole, complete=True, partial=False, other_failures=0, not_checked=0
    )


@pytest.mark.parametrize(
    ("left_out", "text"),
    [
        ({}, "tested 4 of 4 cards on 2 nodes"),
        ({"n3/gpu0": "excluded"}, "tested 4 of 5 cards on 3 nodes; excluded: n3/gpu0"),
        (
            {f"n3/gpu{index}": "not asked for" for index in range(10)},
            "tested 4 of 14 cards on 3 nodes; not asked for: "
            + ", ".join(f"n3/gpu{index}" for index in range(8))
            + " and 2 more",
        ),
    ],
)
def test_the_scope_counts_what_was_left_out(ledger, left_out, text):
    assert text == scope_text(ledger(left_out=left_out))


def test_a_target_without_cards_is_told_in_engines(ledger, rack):
    from dataclasses import replace

    from rackgate.nouns.target import EngineSpec

    engine = EngineSpec(name="endpoint", launcher="remote", model="m", url="http://h:1")
    target = replace(rack(), nodes=(), engines=(engine,), gateway=None)
    whole = ledger({"preflight.reach @ endpoint": Verdict.FAIL}, target=target)
    assert "tested 1 of 1 engine" == scope_text(whole)
    assert headline(whole, complete=True, partial=False, other_failures=0, not_checked=0).startswith(
        "NOT ACCEPTED: 0 of 1 engine qualified"
    )


def test_an_engine_that_never_answered_was_not_tested(rack):
    ledger = Ledger(target=rack())
    for check in plan_checks(ledger.target, ROWS, metrics=METRICS, probes={}):
        if check.slo.stage != "preflight":
            continue
        dead = check.id == "preflight.reach @ node1/gpu0"
        ledger.plan(check)
        ledger.enter(check, Verdict.FAIL if dead else Verdict.PASS, answered=not dead)
    assert {"node1/gpu0"} == ledger.silent()
    assert "tested 3 of 4 cards on 2 nodes; never answered: node1/gpu0" == scope_text(ledger)


def test_one_answer_is_enough_to_have_been_tested(rack):
    ledger = Ledger(target=rack(nodes=1, cards=1))
    rows = [row("preflight.reach", Scope.ENGINE), row("preflight.served", Scope.ENGINE)]
    for check, answered in zip(
        plan_checks(ledger.target, rows, metrics=METRICS, probes={}), (False, True), strict=True
    ):
        ledger.enter(check, Verdict.UNKNOWN, answered=answered)
    assert (frozenset(), "tested 1 of 1 card on 1 node") == (ledger.silent(), scope_text(ledger))


def test_a_declared_absence_is_never_plainly_accepted(ledger, rack):
    whole = ledger(target=rack(gateway=False, may_break=()))
    counts = whole.counts()
    assert 0 < counts["declared"]
    asked = whole.judged + counts["declared"]
    assert f"ACCEPTED WITHIN SCOPE operator, {whole.judged} of {asked} rows: {whole.judged} checks met" == (
        headline(whole, complete=True, partial=False, other_failures=0, not_checked=0)
    )


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({}, "ACCEPTED: 22 checks met"),
        ({"partial": True}, "PARTIAL RUN, nothing to certify: 22 checks asked and met"),
        ({"complete": False}, "INTERRUPTED: not accepted, the run did not reach its end"),
        (
            {"other_failures": 1},
            "NOT ACCEPTED: 4 of 4 cards qualified; 0 FAIL, 0 UNKNOWN; 1 other test failed",
        ),
        (
            {"not_checked": 2},
            f"{QUALIFIED}; 2 tests skipped or xfailed, so not checked",
        ),
    ],
)
def test_the_headline_is_the_whole_truth_in_one_line(ledger, facts, text):
    known = {"complete": True, "partial": False, "other_failures": 0, "not_checked": 0}
    assert text == headline(ledger(), **{**known, **facts}).replace(str(ledger().judged), "22")


@pytest.mark.parametrize(
    ("entity", "tainted"),
    [
        ("node1/gpu0", True),
        ("node1", True),
        ("rack", True),
        ("node1/gpu0+gpu1", True),
        ("node1/gpu1", False),
        ("node2", False),
    ],
)
def test_an_open_warning_taints_what_it_is_a_part_of_and_nothing_else(ledger, entity, tainted):
    warned = "single_card.jitter @ node1/gpu0"
    played = ledger({warned: Verdict.WARN})
    assert ((warned,) if tainted else ()) == played.open_warnings(entity)
    assert () == ledger().open_warnings(entity)


def test_a_warning_of_a_node_taints_its_cards(rack):
    played = Ledger(target=rack())
    played.enter(Check(slo=row("preflight.exporter", Scope.NODE), entity="node1"), Verdict.WARN)
    assert ("preflight.exporter @ node1",) == played.open_warnings("node1/gpu1")
    assert () == played.open_warnings("node2/gpu1")


def test_a_warning_that_became_a_failure_is_none_any_more(rack):
    played = Ledger(target=rack())
    check = Check(slo=row("single_card.jitter", severity=Severity.WARN), entity="node1/gpu0")
    for verdict in (Verdict.WARN, Verdict.UNKNOWN):
        played.enter(check, verdict)
    assert () == played.open_warnings("node1/gpu0")


def test_the_headline_counts_the_warnings(ledger):
    warned = {f"single_card.jitter @ node1/gpu{index}": Verdict.WARN for index in (0, 1)}
    facts = {"complete": True, "partial": False, "other_failures": 0, "not_checked": 0}
    assert headline(ledger(warned), **facts).endswith("checks met, with 2 warnings")
    assert headline(ledger(dict([*warned.items()][:1])), **facts).endswith("checks met, with 1 warning")


def test_a_soak_without_a_failure_proves_a_third_of_its_card_hours_and_no_more(ledger):
    said = proven_mtbf(ledger(), 72 * 3600.0)
    assert "soak: 288 card-hours without a failure prove" in said
    assert "at least 96 card-hours (95 %), no more" in said


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN])
def test_a_soak_with_one_unmet_row_proves_no_endurance(ledger, verdict):
    assert "" == proven_mtbf(ledger({"soak.temperature @ node1/gpu0": verdict}), 3600.0)


def test_a_card_that_was_not_soaked_adds_no_hours(ledger):
    gone = ledger({"single_card.ttft @ node1/gpu0": Verdict.FAIL})
    assert "soak: 3 card-hours" in proven_mtbf(gone, 3600.0)
    assert "" == proven_mtbf(ledger(), 0.0)
