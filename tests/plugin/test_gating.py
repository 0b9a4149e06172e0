"""One bad card does not end the night; what everything rests on does."""

import pytest

pytestmark = pytest.mark.slow

STAGES = (
    "selfcheck",
    "preflight",
    "single_card",
    "two_card",
    "cross_node",
    "soak",
    "fault_injection",
    "batch_retry",
)
BAD_CARD = {"single_card.ttft_p95 @ node1/gpu1": 900.0}


def _asked_in_soak(outcome, entity):
    """Every check of the soak on one entity; what the target declares absent is not asked."""
    asked = _asked(outcome)
    return {one["id"] for one in asked if (one["stage"], one["entity"]) == ("soak", entity)}


def _asked(outcome):
    (plan,) = outcome.of("plan")
    return [one for one in plan["checks"] if not one["declared_absent"]]


def test_a_bad_card_is_quarantined_and_the_rest_goes_on(ladder):
    outcome = ladder(stages=STAGES, values=BAD_CARD)
    assert 1 == outcome.exit_code
    gated = {record["check"] for record in outcome.of("verdict") if record["skipped"] == "gated"}
    assert outcome.end["headline"].startswith(
        f"NOT ACCEPTED: 3 of 4 cards qualified; 1 FAIL, 0 UNKNOWN, {len(gated)} gated"
    )
    soak = _asked_in_soak(outcome, "node1/gpu1")
    assert "soak.temperature @ node1/gpu1" in soak
    assert {
        *soak,
        "two_card.balance @ node1/gpu0+gpu1",
        "two_card.scaling_efficiency @ node1/gpu0+gpu1",
        "two_card.tpot_ratio @ node1/gpu0+gpu1",
    } == gated
    passed = {check.split(" @ ")[1] for check, verdict in outcome.verdicts.items() if verdict == "PASS"}
    assert {"node2/gpu0+gpu1", "node1/gpu0", "rack"} <= passed
    (gate,) = outcome.of("gate")
    assert ("node1/gpu1", "single_card.ttft_p95 @ node1/gpu1") == (gate["entity"], gate["by"])


def test_a_gated_item_is_skipped_in_junit_and_says_by_what(ladder):
    outcome = ladder("-v", stages=("single_card", "two_card"), values=BAD_CARD)
    case = outcome.cases["rackgate.two_card", "two_card.balance @ node1/gpu0+gpu1"]
    assert "UNKNOWN: gated by single_card.ttft_p95 @ node1/gpu1" == case.find("skipped").get("message")
    assert "two_card.balance @ node1/gpu0+gpu1] GATED" in outcome.text
    assert "quarantined: node1/gpu1, by single_card.ttft_p95 @ node1/gpu1 (FAIL)" in outcome.text


def test_an_unknown_quarantines_as_a_fail_does(ladder):
    values = {"preflight.card_present @ node2/gpu0": {"reason": "unreachable", "detail": "no route"}}
    outcome = ladder(stages=("preflight", "single_card"), values=values)
    asked = {one["id"] for one in _asked(outcome)}
    unknown = {check for check, verdict in outcome.verdicts.items() if verdict == "UNKNOWN"}
    assert {"node2/gpu0"} == {check.split(" @ ")[1] for check in unknown & asked}
    assert outcome.end["headline"].startswith("NOT ACCEPTED: 3 of 4 cards qualified; 0 FAIL, 1 UNKNOWN, ")


def test_a_bad_instrument_gates_everything_after_it(ladder):
    outcome = ladder(stages=STAGES, values={"selfcheck.schedule_lag_p99": 40.0})
    judged = {check for check, verdict in outcome.verdicts.items() if verdict in ("PASS", "FAIL")}
    assert {"selfcheck"} == {check.split(".")[0] for check in judged}
    gated = len(_asked(outcome)) - 2
    assert (
        f"NOT ACCEPTED: 0 of 4 cards qualified; 1 FAIL, 0 UNKNOWN, {gated} gated" == outcome.end["headline"]
    )
    assert "tested 0 of 4 cards on 2 nodes" in outcome.end["scope_text"]


def test_a_bad_gateway_gates_only_what_goes_through_it(ladder):
    outcome = ladder(stages=STAGES, values={"preflight.gateway_request": 0.0})
    gated = {record["stage"] for record in outcome.of("verdict") if record["skipped"] == "gated"}
    assert {"cross_node", "soak", "fault_injection", "batch_retry"} == gated


def test_a_node_too_few_gates_the_stage_that_needs_two(ladder):
    values = {f"single_card.ttft_p95 @ node2/gpu{index}": 900.0 for index in (0, 1)}
    outcome = ladder(stages=STAGES, values=values)
    gated = {record["check"] for record in outcome.of("verdict") if record["skipped"] == "gated"}
    assert {"two_card", "cross_node", "soak", "batch_retry"} == {check.split(".")[0] for check in gated}
    lost = ("node2", "node2/gpu0", "node2/gpu1")
    soak = set().union(*(_asked_in_soak(outcome, entity) for entity in lost))
    assert soak
    assert soak == {check for check in gated if check.startswith("soak")}


def test_a_bad_soak_gates_nothing(ladder):
    outcome = ladder(stages=STAGES, values={"soak.ttft_p99": 900.0})
    assert ([], 0) == (outcome.of("gate"), outcome.end["counts"]["gated"])


def test_a_warning_quarantines_nobody(pytester, ladder):
    pytester.path.joinpath("site.toml").write_text(
        '[[slo]]\nid = "single_card.ttft_p95"\nseverity = "warn"\nreason = "trial"\n'
    )
    outcome = ladder("--rack-slo", "site.toml", stages=("single_card", "two_card"), values=BAD_CARD)
    assert (0, []) == (outcome.exit_code, outcome.of("gate"))


@pytest.mark.parametrize("how", ["option", "ini"])
def test_stopping_at_the_first_bad_stage_can_be_asked_for(pytester, ladder, how):
    pytester.makeini("[pytest]\nrack_stop_on_fail = true\n" if how == "ini" else "")
    arguments = ("--rack-stop-on-fail",) if how == "option" else ()
    outcome = ladder(*arguments, stages=STAGES, values=BAD_CARD)
    judged = {check.split(".")[0] for check, verdict in outcome.verdicts.items() if verdict != "UNKNOWN"}
    assert {"selfcheck", "preflight", "single_card"} == judged
