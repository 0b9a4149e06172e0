"""An unmet latency row says what else happened while its slow requests ran, and a known failure its cause."""

from collections import Counter
from dataclasses import replace

import pytest

from rackgate.diagnosis.chain import chain_of
from rackgate.diagnosis.context import with_context
from rackgate.judging.judge import judge
from rackgate.judging.message import verdict_message
from rackgate.loadgen.results.offered_load import Counters, OfferedLoad
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.metrics.metric import measure
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.load import Load, Origin
from rackgate.nouns.measurement import Layer, Measurement, Reason, Symptom
from rackgate.nouns.node import Card, Node
from rackgate.nouns.sample import Outcome, Sample
from rackgate.nouns.slo import Check, Op, Scope, Slo
from rackgate.nouns.target import EngineSpec, Member, Target
from rackgate.telemetry.reading import Reading
from rackgate.telemetry.table import TelemetryTable

SECOND = 1_000_000_000
CARD = "n/gpu0"
LOAD = Load(name="l", prompt_tokens=8, output_tokens=10, looks=(10,))
TARGET = Target(
    name="t",
    model="m",
    grade="simulated",
    nodes=(Node(name="n", cards=(Card(name=CARD, node="n", index=0),)),),
    engines=(EngineSpec(name="e", launcher="remote", model="m", members=(Member(node="n", cards=(CARD,)),)),),
)
CHECK = Check(
    slo=Slo(
        id="single_card.ttft",
        stage="single_card",
        metric="ttft_ms",
        statistic="p95",
        op=Op.AT_MOST,
        bound=100.0,
        unit="ms",
        scope=Scope.ENGINE,
        source="test",
        load="l",
    ),
    entity=CARD,
)


def sample(second, wait_ms, outcome=Outcome.OK):
    start = second * SECOND
    first = start + wait_ms * 1_000_000
    return Sample(
        request_id=f"r{second}",
        engine=CARD,
        load="l",
        label="x",
        outcome=outcome,
        scheduled_ns=start,
        sent_ns=start,
        first_token_ns=first,
        last_token_ns=first,
        done_ns=first,
        token_ns=(first,),
        output_tokens=1,
        token_source="usage",
    )


def observed(waits_ms, throttled=(), *, telemetry=True, outcome=Outcome.OK):
    """Return a load of one request a second and a card that is throttled in the seconds named.

    A request that waits long ends with the outcome.
    """
    samples = [
        sample(second, wait_ms, outcome if wait_ms > 100 else Outcome.OK)
        for second, wait_ms in enumerate(waits_ms)
    ]
    look = OfferedLoad(
        load=LOAD,
        label="x",
        engines=(CARD,),
        end_ns=len(waits_ms) * SECOND,
        samples=SampleTable.from_samples(samples, Origin.SENT),
        counters=Counters(
            scheduled=len(samples),
            started=len(samples),
            outcomes=dict(Counter(str(one.outcome) for one in samples)),
        ),
    )
    rows = [
        Reading(second * SECOND, "n", CARD, "clock_event_reasons", 0x40 if second in throttled else 0.0)
        for second in range(12)
    ]
    return Observation(
        stage="single_card",
        target=TARGET,
        load_runs=(LoadRun(load="l", label="x", looks=(look,)),),
        telemetry=TelemetryTable.from_readings(rows) if telemetry else None,
    )


def message(measurement, check=CHECK):
    judgement = judge(check, measurement)
    chain = chain_of(measurement, judgement, Layer.SERVICE, check.slo.hint)
    return verdict_message(check, measurement, judgement, chain).splitlines()


SLOW = Measurement(metric="ttft_ms", entity=CARD, value=900.0, unit="ms", count=10)


def test_what_lasted_while_the_slow_requests_ran_stands_beside_the_number():
    found = with_context(CHECK, SLOW, observed([50] * 6 + [900] * 4, throttled={6, 7, 8, 9}))
    assert found.beside == (f"seen at the same time: hw_thermal_slowdown on {CARD} (100% of the time)",)
    assert f"  beside  {found.beside[0]}" in message(found)


@pytest.mark.parametrize("metric", ["ttft_to_peers", "tpot_to_peers"])
@pytest.mark.parametrize(("throttled", "seen"), [(range(12), 1), ((), 0)])
def test_an_engine_that_is_slower_than_its_peers_is_slow_in_all_its_requests(metric, throttled, seen):
    check = replace(CHECK, slo=replace(CHECK.slo, metric=metric, statistic="value", unit="ratio", bound=1.5))
    slower = Measurement(metric=metric, entity=CARD, value=1.7, unit="ratio", count=4)
    found = with_context(check, slower, observed([900] * 10, throttled=throttled))
    assert [f"seen at the same time: hw_thermal_slowdown on {CARD} (100% of the time)"] * seen == [
        *found.beside
    ]


@pytest.mark.parametrize(
    "observation",
    [
        observed([50] * 6 + [900] * 4, throttled={1, 2}),
        observed([50] * 10, throttled={1, 2}),
        observed([900] * 10, throttled={1, 2}, telemetry=False),
    ],
    ids=["at another time", "no request over the bound", "no telemetry"],
)
def test_nothing_is_said_of_what_was_not_seen_then(observation):
    assert with_context(CHECK, SLOW, observation).beside == ()


@pytest.mark.parametrize(
    ("detail", "layer", "cause"),
    [
        ("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus", "hardware", "fallen off the bus"),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver", "differ"),
        ("every eighth request was late", "service", None),
    ],
)
def test_an_unmet_verdict_names_the_layer_and_the_cause_where_a_signature_shows_it(detail, layer, cause):
    lines = message(replace(SLOW, detail=detail))
    causes = [one for one in lines if one.startswith("  cause")]
    assert f"  layer   {layer}" in lines
    assert [True] == [cause in one for one in causes] if cause else causes == []


def test_the_first_step_of_the_cause_comes_before_the_rows_hint():
    hinted = replace(CHECK, slo=replace(CHECK.slo, hint="Compare with a neighbour."))
    lines = message(replace(SLOW, symptoms=(Symptom(key="clock:0x48", seen="bits 0x48"),)), hinted)
    assert [one for one in lines if one.startswith(("  layer", "  cause", "  next", "  then"))] == [
        "  layer   hardware",
        "  cause   the card halved its clocks or worse because it is too hot (clock event bit 0x40)",
        "  next    Check coolant flow or fans and the inlet temperature of this node against its neighbours.",
        "  then    Compare with a neighbour.",
    ]


def test_the_chain_goes_from_the_outside_in_and_each_link_says_what_was_seen():
    measurement = replace(
        SLOW,
        symptoms=(
            Symptom(key="xid:74", seen="XID 74 on n/gpu0"),
            Symptom(key="condition:queueing", seen="6 waited"),
        ),
    )
    chain = chain_of(measurement, judge(CHECK, measurement), Layer.SERVICE, "")
    assert [(link.layer, link.name, link.seen) for link in chain.links] == [
        ("service", "queueing", "6 waited"),
        ("hardware", "nvlink_error", "XID 74 on n/gpu0"),
    ]
    assert (chain.layer, chain.leading.name) == ("hardware", "nvlink_error")


def test_a_value_that_is_missing_lies_on_the_way_there():
    nothing = SLOW.without_value(Reason.UNREACHABLE, "no answer")
    chain = chain_of(nothing, judge(CHECK, nothing), Layer.HARDWARE, "")
    assert (chain.layer, chain.links[0].meaning) == ("network", "no value: unreachable")
    assert message(nothing)[-1] == f"  next    {Reason.UNREACHABLE.cure}"


def test_a_met_verdict_has_no_chain():
    met = replace(SLOW, value=1.0, detail="GPU has fallen off the bus")
    assert chain_of(met, judge(CHECK, met), Layer.SERVICE, "") is None
    assert not [line for line in message(met) if line.startswith(("  cause", "  layer", "  next"))]


def test_what_lasted_while_requests_failed_stands_beside_the_error_rate():
    check = replace(CHECK, slo=replace(CHECK.slo, metric="error_rate", unit="ratio", bound=0.0))
    rate = Measurement(metric="error_rate", entity=CARD, value=0.4, unit="ratio", count=10)
    broken = observed([50] * 6 + [900] * 4, throttled={6, 7, 8, 9}, outcome=Outcome.STREAM_ERROR)
    assert f"hw_thermal_slowdown on {CARD}" in with_context(check, rate, broken).beside[0]


def test_an_unfair_gateway_stands_beside_a_slow_row_of_the_rack():
    two = replace(TARGET, engines=(TARGET.engines[0], replace(TARGET.engines[0], name="f", members=())))
    samples = [
        replace(sample(second, 900), engine="gateway", served_by=CARD, request_id=f"{second}.{number}")
        for second in range(10)
        for number in range(20)
    ]
    look = OfferedLoad(
        load=LOAD,
        label="x",
        engines=("gateway",),
        samples=SampleTable.from_samples(samples, Origin.SENT),
        counters=Counters(scheduled=200, started=200, outcomes={"ok": 200}),
    )
    seen = replace(observed([900] * 10), target=two, load_runs=(LoadRun(load="l", label="x", looks=(look,)),))
    found = with_context(replace(CHECK, entity="rack"), SLOW, seen)
    assert any("the gateway gave it 100% of the requests, fair were 50%" in text for text in found.beside)


def test_a_throttled_card_is_known_by_its_bits_where_the_driver_has_no_counters():
    registry = shipped_registry()
    row = replace(CHECK.slo, metric="throttle_time_s", statistic="value", unit="s", scope=Scope.CARD)
    seen = replace(observed([50] * 10, throttled={2, 3}), sample_gap_s=2.0)
    found = measure(registry.metrics, row, CARD, seen)
    assert (found.detail, [one.key for one in found.symptoms]) == ("bits seen 0x40", ["clock:0x40"])


def test_a_hot_card_is_known_by_the_bits_of_its_clocks():
    check = replace(CHECK, slo=replace(CHECK.slo, metric="temperature_c", unit="°C", scope=Scope.CARD))
    hot = Measurement(metric="temperature_c", entity=CARD, value=95.0, unit="°C", count=10)
    found = with_context(check, hot, observed([50] * 10, throttled={2, 3}))
    assert [one.key for one in found.symptoms] == ["clock:0x40"]
