"""From a measurement and a row to a verdict: what has no value never passes, bounds are exact."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.diagnosis.chain import chain_of
from rackgate.judging.judge import judge
from rackgate.judging.message import hint_of, verdict_message
from rackgate.nouns.measurement import Bounds, Layer, Measurement, Reason, missing
from rackgate.nouns.slo import Check, Op, Scope, Severity, Slo
from rackgate.nouns.verdict import Verdict, worst

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)
VALUES = st.floats(allow_nan=False)


def row(**changes):
    facts = {
        "id": "single_card.ttft_p99",
        "stage": "single_card",
        "metric": "ttft_ms",
        "statistic": "value",
        "op": Op.AT_MOST,
        "bound": 500.0,
        "unit": "ms",
        "scope": Scope.CARD,
        "source": "contract",
    }
    return Slo(**{**facts, **changes})


def check(**changes):
    return Check(slo=row(**changes), entity="node1/gpu0")


def value(number, **changes):
    return Measurement(
        **{
            "metric": "ttft_ms",
            "entity": "node1/gpu0",
            "value": number,
            "unit": "ms",
            "count": 500,
            **changes,
        }
    )


@given(st.sampled_from(list(Reason)), st.sampled_from(list(Op)), st.sampled_from(list(Severity)), FINITE)
def test_a_measurement_without_a_value_never_passes(reason, op, severity, bound):
    nothing = missing("ttft_ms", "node1/gpu0", "ms", reason, "why")
    judged = judge(check(op=op, severity=severity, bound=bound), nothing)
    assert (Verdict.UNKNOWN, reason) == (judged.verdict, judged.reason)


@given(VALUES, FINITE, st.sampled_from(list(Op)), st.integers(0, 99))
def test_too_few_samples_never_pass(number, bound, op, count):
    judged = judge(check(op=op, bound=bound, min_count=100), value(number, count=count))
    assert (Verdict.UNKNOWN, Reason.TOO_FEW, True) == (judged.verdict, judged.reason, judged.open)


@given(VALUES, FINITE)
def test_a_value_passes_exactly_at_its_bound_and_fails_just_beyond(number, bound):
    expected = {
        Op.AT_MOST: number <= bound,
        Op.AT_LEAST: number >= bound,
        Op.EQUAL: number == bound,
    }
    for op, holds in expected.items():
        verdict = judge(check(op=op, bound=bound), value(number)).verdict
        assert (Verdict.PASS if holds else Verdict.FAIL) == verdict


@pytest.mark.parametrize("op", [Op.AT_MOST, Op.AT_LEAST])
def test_one_step_of_a_float_decides(op):
    away = math.inf if op is Op.AT_MOST else -math.inf
    assert Verdict.PASS == judge(check(op=op), value(500.0)).verdict
    assert Verdict.FAIL == judge(check(op=op), value(math.nextafter(500.0, away))).verdict


@given(FINITE, FINITE, FINITE, FINITE)
def test_a_percentile_passes_by_its_far_bound_and_fails_by_its_near_one(low, middle, high, bound):
    low, middle, high = sorted((low, middle, high))
    bounds = Bounds(lower=low, upper=high, confidence=0.98)
    judged = judge(check(statistic="p99", bound=bound), value(middle, bounds=bounds))
    if high <= bound:
        assert Verdict.PASS == judged.verdict
    elif low > bound:
        assert Verdict.FAIL == judged.verdict
    else:
        assert (Verdict.UNKNOWN, Reason.TOO_FEW, True) == (judged.verdict, judged.reason, judged.open)


@given(FINITE, FINITE, FINITE)
def test_a_lower_limit_on_a_percentile_mirrors_an_upper_one(low, high, bound):
    low, high = sorted((low, high))
    up = Bounds(lower=low, upper=high, confidence=0.98)
    down = Bounds(lower=-high, upper=-low, confidence=0.98)
    most = judge(check(statistic="p95", bound=bound), value(low, bounds=up))
    least = judge(check(statistic="p95", op=Op.AT_LEAST, bound=-bound), value(-low, bounds=down))
    assert most.verdict == least.verdict


@given(st.sampled_from(["p50", "p95", "p99", "p999"]), FINITE)
def test_a_percentile_whose_side_is_unbounded_is_open_not_passed(statistic, number):
    bounds = Bounds(lower=None, upper=None, confidence=0.98)
    assert Verdict.UNKNOWN == judge(check(statistic=statistic), value(number, bounds=bounds)).verdict


def test_failed_requests_that_reach_a_percentile_fail_it():
    bounds = Bounds(lower=math.inf, upper=math.inf, confidence=0.98)
    judged = judge(check(statistic="p99"), value(math.inf, bounds=bounds))
    assert (Verdict.FAIL, None) == (judged.verdict, judged.margin)


@given(st.one_of(st.none(), VALUES), st.sampled_from(list(Op)), FINITE)
def test_a_warn_row_is_never_a_fail_and_never_hides_an_unknown(number, op, bound):
    measured = value(number) if number is not None else missing("ttft_ms", "e", "ms", Reason.BLANK, "")
    blocker = judge(check(op=op, bound=bound), measured).verdict
    warn = judge(check(op=op, bound=bound, severity=Severity.WARN), measured).verdict
    assert {Verdict.FAIL: Verdict.WARN}.get(blocker, blocker) == warn


@given(VALUES)
def test_a_check_without_an_applicable_row_is_unknown_whatever_was_measured(number):
    one = Check(slo=row(), entity="node1/gpu0", undecidable="no row applies")
    assert Verdict.UNKNOWN == judge(one, value(number)).verdict


@pytest.mark.parametrize(
    ("op", "number", "margin"),
    [(Op.AT_MOST, 400.0, 0.2), (Op.AT_MOST, 600.0, -0.2), (Op.AT_LEAST, 600.0, 0.2), (Op.EQUAL, 500.0, None)],
)
def test_the_margin_is_positive_inside_the_bound(op, number, margin):
    assert margin == judge(check(op=op), value(number)).margin


def test_there_is_no_margin_to_a_bound_of_zero():
    assert judge(check(bound=0.0), value(0.0)).margin is None


def test_nan_is_no_value():
    with pytest.raises(ValueError, match="NaN is not a value"):
        value(math.nan)


def test_a_value_and_a_reason_exclude_each_other():
    with pytest.raises(ValueError, match="exactly one of value and reason"):
        value(1.0, reason=Reason.BLANK)
    with pytest.raises(ValueError, match="exactly one of value and reason"):
        value(None)


@given(st.lists(st.sampled_from(list(Verdict))))
def test_the_worst_verdict_wins_and_nothing_is_unknown(verdicts):
    order = [Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS]
    expected = next((one for one in order if one in verdicts), Verdict.UNKNOWN)
    assert expected == worst(verdicts)
    assert worst(verdicts).accepted == (bool(verdicts) and set(verdicts) <= {Verdict.PASS, Verdict.WARN})


@pytest.mark.parametrize(
    ("statistic", "quantile"),
    [("p50", 0.5), ("p95", 0.95), ("p999", 0.999), ("value", None), ("max", None), ("p", None)],
)
def test_statistics_that_are_percentiles(statistic, quantile):
    assert quantile == check(statistic=statistic).slo.quantile


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (Reason.INSTRUMENT, "Use a quieter or a second load machine."),
        (Reason.UNREACHABLE, "Check the address in the target"),
        (Reason.BLANK, "Look at this card."),
    ],
)
def test_the_next_step_is_about_what_stood_in_the_way(reason, said):
    asked, nothing = check(hint="Look at this card."), missing("ttft_ms", "node1/gpu0", "ms", reason, "why")
    judgement = judge(asked, nothing)
    chain = chain_of(nothing, judgement, Layer.HARDWARE, hint_of(asked, nothing, judgement))
    message = verdict_message(asked, nothing, judgement, chain)
    (step,) = [line for line in message.splitlines() if line.startswith("  next ")]
    assert said in step


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_cure(reason):
    assert reason.cure.endswith(".")
