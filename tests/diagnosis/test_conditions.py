"""The conditions of an unmet speed row, each under a real load on a simulated engine that has the fault."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest

from rackgate.diagnosis.chain import chain_of
from rackgate.diagnosis.conditions import conditions_of
from rackgate.diagnosis.context import with_context
from rackgate.judging.judge import judge
from rackgate.loadgen.running import start_load
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Arrival, Load, Phase
from rackgate.nouns.measurement import Layer, Measurement
from rackgate.nouns.slo import Check, Op, Scope, Slo
from rackgate.simulator.rack import start_rack
from rackgate.simulator.scenarios import Scenario
from rackgate.simulator.settings import RackSettings
from rackgate.telemetry.assembly import assemble, plan_of
from rackgate.telemetry.sampler import Sampler

pytestmark = pytest.mark.slow

FAULTS = {
    "healthy": {},
    "narrow": {"max_num_seqs": 2},
    "cold": {"cold_requests": 16, "cold_extra_ms": 400.0},
    "jittery": {"slow_every": 8, "slow_extra_ms": 500.0},
    "idle": {"work_reaches_card": False, "first_token_delay_ms": 200.0},
    "shared_batch": {"max_num_seqs": 256, "prefill_tokens_per_s": 4200.0},
    "unstable": {"slow_every": 5, "slow_extra_ms": 300.0, "slow_from_running": 6},
}
CARDS = {name: f"node1/gpu{index}" for index, name in enumerate(FAULTS)}
CLOSED = Load(
    name="closed", prompt_tokens=64, output_tokens=16, concurrency=8, looks=(64,), warmup_requests=0, seed=5
)
GROWING = replace(
    CLOSED,
    name="growing",
    looks=(),
    arrival=Arrival.POISSON,
    concurrency=256,
    phases=(Phase(duration_s=2.5, rate_per_s=16.0), Phase(duration_s=1.2, rate_per_s=75.0)),
)


def row(metric="ttft_ms", bound=100.0, load="closed"):
    return Slo(
        id="single_card.row",
        stage="single_card",
        metric=metric,
        statistic="p95",
        op=Op.AT_MOST,
        bound=bound,
        unit="ms",
        scope=Scope.ENGINE,
        source="test",
        load=load,
    )


def offered(rack, load, faults, folder):
    running = start_load(
        load,
        [
            Endpoint(entity=engine.entity, url=engine.url, model=engine.spec.model)
            for engine in rack.engines
            if engine.entity in {CARDS[name] for name in faults}
        ],
        label="a",
        samples_path=folder / f"{load.name}.parquet",
        seed=3,
    )
    return LoadRun(load=load.name, label="a", looks=(running.finish(),))


@pytest.fixture(scope="module")
def observation(tmp_path_factory):
    """Offer a closed and a growing load to engines that each have a fault of their own."""
    folder = tmp_path_factory.mktemp("conditions")
    scenario = Scenario(
        name="faults", summary="", cards={CARDS[name]: knobs for name, knobs in FAULTS.items()}
    )
    with start_rack(RackSettings(nodes=1, cards=len(FAULTS)), scenario=scenario) as rack:
        sampler = Sampler(assemble(rack.target, plan_of(rack.target)), folder, interval_s=0.1)
        sampler.start()
        try:
            growing = offered(rack, GROWING, ("shared_batch", "unstable"), folder)
            closed = offered(rack, CLOSED, list(FAULTS)[:5], folder)
            deadline = time.monotonic() + 5
            while sampler.last_sample_ns <= closed.last.end_ns and time.monotonic() < deadline:
                time.sleep(0.02)
            seen_ns = sampler.last_sample_ns
            telemetry = sampler.window(growing.last.start_ns, closed.last.end_ns, seen_ns=seen_ns)
        finally:
            sampler.stop()
        yield Observation(
            stage="single_card",
            target=rack.target,
            load_runs=(closed, growing),
            telemetry=telemetry,
            lag_limit_ms=1000.0,  # a test of words, on a machine that is busy with other tests
        )


@pytest.fixture
def conditions(observation):
    """Return the conditions by name of a row at the card with a fault."""

    def found(fault, slo):
        symptoms = conditions_of(slo, CARDS[fault], observation)
        return {one.key.removeprefix("condition:"): one.seen for one in symptoms}

    return found


def test_requests_that_wait_in_the_queue_of_the_engine(conditions):
    found = conditions("narrow", row())
    assert {"queueing", "first_token_slow", "busy_and_slow"} <= set(found)
    assert " requests waited at node1/gpu1 on average: " in found["queueing"]
    assert not {"not_warmed_up", "batching", "idle_under_load"} & set(found)


def test_only_the_first_requests_are_slow_where_the_engine_was_cold(conditions):
    found = conditions("cold", row(bound=300.0))
    assert re.match(r"(\d+) of \1 slow requests are among the first \d\d of 64 ", found["not_warmed_up"])
    assert not {"queueing", "batching", "idle_under_load"} & set(found)


def test_the_first_token_comes_later_the_more_requests_are_in_the_batch(conditions):
    found = conditions("shared_batch", row(load="growing"))
    assert "queueing" not in found
    assert "in flight" in found["batching"]


def test_latency_that_spreads_as_requests_in_flight_grow_is_unstable(conditions):
    found = conditions("unstable", row(load="growing"))
    assert re.match(r"TTFT P99 / P50 = [\d.]+ at up to \d+ in flight, [\d.]+ from", found["latency_unstable"])


def test_latency_that_spreads_at_the_same_concurrency_is_unstable_too(conditions):
    found = conditions("jittery", row("jitter_ratio", 3.0))
    assert found["latency_unstable"].endswith(" at 8 in flight")


def test_a_load_that_does_not_reach_the_card_leaves_it_idle(conditions):
    found = conditions("idle", row())
    assert found["idle_under_load"].startswith("node1/gpu4 idle while requests ran")
    assert "busy_and_slow" not in found


def test_a_card_that_is_busy_all_the_time_is_full(conditions):
    assert "utilisation of node1/gpu1: " in conditions("narrow", row())["busy_and_slow"]


def test_a_healthy_engine_shows_no_condition_of_a_fault(conditions):
    assert set(conditions("healthy", row(bound=5000.0))) <= {"busy_and_slow"}


@pytest.mark.parametrize("metric", ["error_rate", "temperature_c"])
def test_nothing_is_looked_for_in_a_row_that_is_not_of_speed(conditions, metric):
    assert {} == conditions("narrow", row(metric))


def test_without_telemetry_no_queue_is_claimed(observation):
    blind = replace(observation, telemetry=None)
    found = {one.key for one in conditions_of(row(), CARDS["narrow"], blind)}
    assert not {"condition:queueing", "condition:batching", "condition:busy_and_slow"} & found


def test_a_condition_reaches_the_chain_and_the_first_step_of_the_message(observation):
    check = Check(slo=row(), entity=CARDS["cold"])
    slow = Measurement(metric="ttft_ms", entity=check.entity, value=900.0, unit="ms", count=64)
    found = with_context(check, slow, observation)
    chain = chain_of(found, judge(check, found), Layer.SERVICE, "")
    assert "not_warmed_up" in {link.name for link in chain.links}
    assert chain.leading.name == "not_warmed_up"
    assert chain.next_steps("")[0].startswith("Raise the load's warmup_requests")
