"""What a load cost, and what of it was good: numbers where they were measured, a reason where not."""

from dataclasses import replace

import numpy as np
import pytest

from rackgate.loadgen.results.offered_load import Counters, OfferedLoad
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.metrics.economy import Economies
from rackgate.metrics.hardware import card_signals as hardware
from rackgate.metrics.hardware import cost
from rackgate.metrics.hardware import node_energy as rack_energy
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.metrics.requests import rates
from rackgate.nouns.load import Load, Origin
from rackgate.nouns.measurement import Measurement, Reason
from rackgate.nouns.node import Card, Node, NodeAccess
from rackgate.nouns.sample import Outcome, Sample
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.nouns.target import EngineSpec, Member, Prices, Target

SECOND = 1_000_000_000
CARD = "n/gpu0"
LOAD = Load(name="l", prompt_tokens=8, output_tokens=10, looks=(11,), ttft_bound_ms=100.0)
TARGET = Target(
    name="t",
    model="m",
    grade="simulated",
    nodes=(Node(name="n", cards=(Card(name=CARD, node="n", index=0),)),),
    engines=(EngineSpec(name="e", launcher="remote", model="m", members=(Member(node="n", cards=(CARD,)),)),),
    prices=Prices(currency="EUR", card_hour=3.6, kwh=0.36),
)


def sample(number, *, wait_ms=50, outcome=Outcome.OK):
    start = number * SECOND
    first = start + wait_ms * 1_000_000
    return Sample(
        request_id=f"r{number}",
        engine=CARD,
        load="l",
        label="x",
        outcome=outcome,
        scheduled_ns=start,
        sent_ns=start,
        first_token_ns=first,
        last_token_ns=start + SECOND // 2,
        done_ns=start + SECOND // 2,
        token_ns=(first, start + SECOND // 2),
        output_tokens=10,
        token_source="usage",
    )


MOMENTS = np.arange(-2, 40) * SECOND // 2


class Power:
    """Telemetry by field, at every half second; by default one card draws 500 W all the time."""

    def __init__(self, **fields):
        self._fields = fields or {"power_w": np.full(len(MOMENTS), 500.0)}

    def series(self, _entity, field):
        from rackgate.telemetry.table import Series

        if field not in self._fields:
            return Series(t_ns=np.zeros(0, dtype=np.int64), values=np.zeros(0), reasons=())
        return Series(t_ns=MOMENTS, values=self._fields[field], reasons=())


def observed(samples, *, target=TARGET, telemetry=None, load=LOAD):
    look = OfferedLoad(
        load=load,
        label="x",
        engines=(CARD,),
        samples=SampleTable.from_samples(samples, Origin.SENT),
        counters=Counters(scheduled=len(samples), started=len(samples), outcomes={"ok": len(samples)}),
    )
    return Observation(
        stage="single_card",
        target=target,
        load_runs=(LoadRun(load="l", label="x", looks=(look,)),),
        telemetry=telemetry,
    )


def measure(function, unit, observation, entity=CARD):
    row = Slo(
        id="single_card.x",
        stage="single_card",
        metric="x",
        statistic="value",
        op=Op.AT_MOST,
        bound=1.0,
        unit=unit,
        scope=Scope.CARD,
        source="t",
        load="l",
    )
    return function(observation, row, entity)


TEN = [sample(number) for number in range(11)]


def test_a_million_tokens_cost_card_hours_and_energy():
    found = measure(cost.cost_per_million_output_tokens, "currency", observed(TEN, telemetry=Power()))
    # 10 requests of 10 tokens end in 10 s: 10 tok/s; 0.001 EUR/s for the card, 0.00005 for its energy
    assert found.value == pytest.approx((3.6 / 3600 + 500 / 3.6e6 * 0.36) / 10 * 1e6)
    assert "EUR; 1 cards at 3.6 EUR/h, 500 W at 0.36 EUR/kWh" == found.detail


def test_a_thousand_requests_cost_ten_tokens_each():
    observation = observed(TEN, telemetry=Power())
    tokens = measure(cost.cost_per_million_output_tokens, "currency", observation).value
    requests = measure(cost.cost_per_1000_requests, "currency", observation).value
    assert requests == pytest.approx(tokens / 1e6 * 10 * 1000)


def test_energy_per_request_is_power_over_rate():
    found = measure(cost.energy_per_request_j, "J", observed(TEN, telemetry=Power()))
    assert found.value == pytest.approx(500.0)


RAMP = np.arange(-1.0, 20.0, 0.5) * 100  # W at t: 100 x t in seconds; the load lasts from 0 to 10.5 s


@pytest.mark.parametrize(
    ("fields", "watts", "source"),
    [
        ({"power_w": RAMP}, 525.0, "time-weighted mean of samples"),
        ({"power_w": RAMP, "energy_j": RAMP * 4}, 400.0, "from the energy counter"),
        ({"power_w": np.where(MOMENTS < 5 * SECOND, 200.0, 600.0)}, (200 * 4.75 + 600 * 5.75) / 10.5, ""),
    ],
)
def test_the_energy_of_a_token_is_the_energy_of_a_known_series_over_its_tokens(fields, watts, source):
    """Ten tokens a second came in the steady window."""
    observation = observed(TEN, telemetry=Power(**fields))
    power = measure(hardware.power_w, "W", observation)
    assert power.value == pytest.approx(watts)
    assert source in power.detail
    found = measure(hardware.energy_per_output_token_j, "J/tok", observation)
    assert found.value == pytest.approx(watts / 10)
    assert (11, "J/tok") == (found.count, found.unit)


@pytest.mark.parametrize(
    ("node", "prometheus", "source"),
    [
        ({"exporter_url": "http://n:9400/metrics"}, None, "exporter"),
        ({"exporter_url": "http://n:9400/metrics"}, "http://p:9090", "exporter"),
        ({}, "http://p:9090", "prometheus"),
        ({"access": NodeAccess(cards="nvml", local=True)}, "http://p:9090", "nvml"),
        ({"access": NodeAccess(cards="nvidia-smi", ssh="n")}, None, "nvidia-smi"),
    ],
)
def test_a_card_s_value_names_the_source_that_was_asked(node, prometheus, source):
    target = replace(TARGET, nodes=(replace(TARGET.nodes[0], **node),), prometheus_url=prometheus)
    observation = observed(TEN, target=target, telemetry=Power(power_w=RAMP, temperature_c=RAMP))
    for function in (
        hardware.power_w,
        hardware.temperature_c,
        hardware.energy_per_output_token_j,
        cost.energy_per_request_j,
    ):
        assert source == measure(function, "any", observation).source


def test_the_energy_of_nodes_is_told_apart_from_that_of_their_cards():
    telemetry = Power(power_w=np.full(len(MOMENTS), 500.0), chassis_power_w=RAMP)
    observation = observed(TEN, telemetry=telemetry)
    cards = measure(hardware.energy_per_output_token_j, "J/tok", observation, "rack")
    nodes = measure(rack_energy.rack_energy_per_output_token_j, "J/tok", observation, "rack")
    assert (cards.value, nodes.value) == pytest.approx((50.0, 52.5))
    assert ("exporter", "redfish") == (cards.source, nodes.source)


def test_a_controller_that_is_asked_too_seldom_does_not_tell_the_energy_of_a_short_load():
    """Every 2.5 s in a load of 10.5 s: what lay between the looks would be guessed."""
    seldom = np.where(np.arange(len(MOMENTS)) % 5 == 0, RAMP, np.nan)
    observation = observed(TEN, telemetry=Power(chassis_power_w=seldom))
    found = measure(rack_energy.rack_power_w, "W", observation, "rack")
    assert (None, Reason.STALE) == (found.value, found.reason)
    assert "n: asked too seldom for a load of 10.5 s" == found.detail


def test_without_a_controller_the_energy_of_a_node_is_not_known():
    found = measure(
        rack_energy.rack_energy_per_output_token_j, "J/tok", observed(TEN, telemetry=Power()), "rack"
    )
    assert (None, Reason.STALE) == (found.value, found.reason)
    found = measure(hardware.energy_per_output_token_j, "J/tok", observed(TEN))
    assert (None, Reason.NOT_CONFIGURED) == (found.value, found.reason)


def test_a_class_of_work_took_what_all_its_loads_took_over_all_their_work():
    def taken(value, count, source="exporter"):
        return Measurement(
            metric="energy_per_output_token_j", entity="rack", value=value, unit="J/tok", count=count,
            source=source,
        )  # fmt: skip

    economies = Economies()
    economies.add("assistant", "s2/a", taken(2.0, 10), 100.0)
    economies.add("assistant", "s3/b", taken(4.0, 30, "redfish"), 300.0)
    economies.add("batch", "s5/c", taken(9.0, 5), 10.0)
    found = dict(economies.classes())
    assert {"assistant": (3.5, 40), "batch": (9.0, 5)} == {
        workload: (measured.value, measured.count) for workload, measured in found.items()
    }
    assert "class assistant: s2/a, s3/b" == found["assistant"].detail
    assert ("exporter, redfish", "exporter") == (found["assistant"].source, found["batch"].source)


def test_without_a_price_of_energy_no_power_is_needed():
    target = replace(TARGET, prices=Prices(currency="EUR", card_hour=3.6))
    found = measure(cost.cost_per_1000_requests, "currency", observed(TEN, target=target))
    assert found.value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("prices", "telemetry", "reason"),
    [
        (None, Power(), Reason.NOT_CONFIGURED),
        (Prices(currency="EUR"), Power(), Reason.NOT_CONFIGURED),
        (Prices(currency="EUR", kwh=0.3), None, Reason.NOT_CONFIGURED),
    ],
)
def test_what_was_not_priced_or_not_measured_costs_an_unknown_amount(prices, telemetry, reason):
    observation = observed(TEN, target=replace(TARGET, prices=prices), telemetry=telemetry)
    for function in (cost.cost_per_1000_requests, cost.cost_per_million_output_tokens):
        found = measure(function, "currency", observation)
        assert (None, reason) == (found.value, found.reason)


def test_goodput_counts_what_kept_every_bound():
    slow = [*TEN[:8], sample(8, wait_ms=200), sample(9, outcome=Outcome.REFUSED), sample(10)]
    found = measure(rates.goodput, "ratio", observed(slow))
    assert (9 / 11, 11, "TTFT <= 100 ms") == (found.value, found.count, found.detail)
    assert found.bounds.lower < 9 / 11 < found.bounds.upper
    per_s = measure(rates.goodput_per_s, "1/s", observed(slow))
    assert per_s.value == pytest.approx(8 / 10)  # the last one ends after the window


def test_goodput_without_bounds_is_not_configured():
    found = measure(rates.goodput, "ratio", observed(TEN, load=replace(LOAD, ttft_bound_ms=None)))
    assert Reason.NOT_CONFIGURED is found.reason
