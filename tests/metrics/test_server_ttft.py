"""Our times to first token beside the engine's own histogram."""

from dataclasses import replace

import pytest

from rackgate.checks.plan import plan_checks
from rackgate.judging.judge import judge
from rackgate.metrics.metric import measure
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.measurement import Reason
from rackgate.nouns.slo import Check, Op, Scope, Severity, Slo
from rackgate.nouns.verdict import Verdict
from rackgate.telemetry.engine_metrics import TtftHistogram

METRICS = shipped_registry().metrics

CARD = "node1/gpu0"
EDGES = (0.05, 0.1, 0.2, float("inf"))
ROW = Slo(
    id="single_card.server_ttft",
    stage="single_card",
    metric="server_ttft_difference_ms",
    statistic="value",
    op=Op.AT_MOST,
    bound=25.0,
    unit="ms",
    scope=Scope.ENGINE,
    severity=Severity.WARN,
    source="test",
    load="l",
)


@pytest.fixture
def measured(request_of, seen):
    """Return what is measured of 20 requests of so many ms each, and the engine's own cumulative counts."""

    def measured(ttft_ms, *counts):
        observation = seen([request_of(number, ttft_ms=ttft_ms) for number in range(20)])
        told = {CARD: TtftHistogram(EDGES, counts, 1.0)} if counts else {}
        offers = tuple(
            replace(offer, looks=tuple(replace(look, server_ttft=told) for look in offer.looks))
            for offer in observation.load_runs
        )
        registry = shipped_registry()
        return measure(registry.metrics, ROW, CARD, replace(observation, load_runs=offers))

    return measured


@pytest.mark.parametrize(
    ("ttft_ms", "outside", "verdict"),
    [
        (150, 0.0, Verdict.PASS),
        (215, 15.0, Verdict.PASS),
        (240, 40.0, Verdict.WARN),
        (60, 40.0, Verdict.WARN),
    ],
    ids=["inside", "outside, less than agreed", "later than the engine says", "earlier than it says"],
)
def test_what_we_measured_is_compared_with_the_bucket_of_the_engine(measured, ttft_ms, outside, verdict):
    found = measured(ttft_ms, 0, 0, 20, 20)
    assert (found.value, found.count) == (pytest.approx(outside), 20)
    assert judge(Check(slo=ROW, entity=CARD), found).verdict is verdict
    assert f"P95 {ttft_ms:.1f} ms, the engine's own between 100 and 200 ms" in found.detail


def test_what_is_beyond_the_last_edge_of_the_engine_is_inside(measured):
    assert measured(900, 0, 0, 0, 20).value == 0.0


def test_a_request_more_on_one_side_widens_the_bucket_and_many_more_are_not_compared(measured):
    assert measured(60, 0, 1, 21, 21).value == pytest.approx(40.0)
    crowded = measured(60, 0, 0, 40, 40)
    assert crowded.reason is Reason.UNSUPPORTED
    assert "counted 40 first tokens, this load had 20: others ask it too" in crowded.detail


def test_an_engine_without_a_histogram_is_unknown(measured):
    assert measured(60).reason is Reason.UNSUPPORTED


def test_the_row_is_asked_only_of_engines_that_are_known_to_tell(seen, request_of):
    target = seen([request_of(0, ttft_ms=1)]).target
    engines = tuple(
        replace(engine, name=kind, settings={"engine": kind})
        for engine, kind in zip(target.engines, ("vllm", "llama-cpp"), strict=True)
    )
    checks = plan_checks(
        replace(target, vantage="operator", engines=engines), [ROW], metrics=METRICS, probes={}
    )
    assert [check.declared_absent for check in checks] == [
        "",
        "target t does not say that engine llama-cpp is one of vllm, sglang, nim (engine)",
    ]
