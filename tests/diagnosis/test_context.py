"""An unmet latency row says what else happened while its slow requests ran, and a known failure its cause."""

import pytest

from rackgate.diagnosis.context import with_what_else
from rackgate.judge import judge
from rackgate.load import Load, Origin
from rackgate.loadgen import Counters, OfferedLoad, SampleTable
from rackgate.measurement import Measurement
from rackgate.message import verdict_message
from rackgate.observation import Observation, Offer
from rackgate.sample import Outcome, Sample
from rackgate.slo import Check, Op, Scope, Slo
from rackgate.target import Card, EngineSpec, Member, Node, Target
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


def sample(second, wait_ms):
    start = second * SECOND
    first = start + wait_ms * 1_000_000
    return Sample(
        request_id=f"r{second}",
        engine=CARD,
        load="l",
        label="x",
        outcome=Outcome.OK,
        scheduled_ns=start,
        sent_ns=start,
        first_token_ns=first,
        last_token_ns=first,
        done_ns=first,
        token_ns=(first,),
        output_tokens=1,
        token_source="usage",
    )


def observed(waits_ms, throttled=(), *, telemetry=True):
    """Return a load of one request a second and a card that is throttled in the seconds named."""
    samples = [sample(second, wait_ms) for second, wait_ms in enumerate(waits_ms)]
    look = OfferedLoad(
        load=LOAD,
        label="x",
        engines=(CARD,),
        samples=SampleTable.from_samples(samples, Origin.SENT),
        counters=Counters(scheduled=len(samples), started=len(samples), outcomes={"ok": len(samples)}),
    )
    rows = [
        Reading(second * SECOND, "n", CARD, "clock_event_reasons", 0x40 if second in throttled else 0.0)
        for second in range(12)
    ]
    return Observation(
        stage="single_card",
        target=TARGET,
        offers=(Offer(load="l", label="x", looks=(look,)),),
        telemetry=TelemetryTable.from_readings(rows) if telemetry else None,
    )


SLOW = Measurement(metric="ttft_ms", entity=CARD, value=900.0, unit="ms", count=10)


def test_what_lasted_while_the_slow_requests_ran_stands_beside_the_number():
    found = with_what_else(CHECK, SLOW, observed([50] * 6 + [900] * 4, throttled={6, 7, 8, 9}))
    assert found.beside == (f"seen at the same time: hw_thermal_slowdown on {CARD} (100% of the time)",)
    assert f"  beside  {found.beside[0]}" in verdict_message(CHECK, found, judge(CHECK, found)).splitlines()


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
    assert with_what_else(CHECK, SLOW, observation).beside == ()


@pytest.mark.parametrize(
    ("detail", "line"),
    [
        ("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus", "  cause   hardware: "),
        ("Failed to initialize NVML: Driver/library version mismatch", "  cause   driver: "),
        ("every eighth request was late", None),
    ],
)
def test_an_unmet_verdict_names_the_cause_where_a_signature_shows_it(detail, line):
    measurement = Measurement(metric="ttft_ms", entity=CARD, value=900.0, unit="ms", count=10, detail=detail)
    lines = verdict_message(CHECK, measurement, judge(CHECK, measurement)).splitlines()
    causes = [one for one in lines if one.startswith("  cause")]
    assert [line] == [one[: len(line)] for one in causes] if line else causes == []


def test_a_met_verdict_has_no_cause():
    measurement = Measurement(
        metric="ttft_ms", entity=CARD, value=1.0, unit="ms", count=10, detail="GPU has fallen off the bus"
    )
    assert "cause" not in verdict_message(CHECK, measurement, judge(CHECK, measurement))
