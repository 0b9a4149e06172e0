"""What a load cost, and what of it was good: numbers where they were measured, a reason where not."""

from dataclasses import replace

import numpy as np
import pytest

from rackgate.load import Load, Origin
from rackgate.loadgen import Counters, OfferedLoad, SampleTable
from rackgate.measurement import Reason
from rackgate.metrics import cost, rates
from rackgate.observation import Observation, Offer
from rackgate.sample import Outcome, Sample
from rackgate.slo import Op, Scope, Slo
from rackgate.target import Card, EngineSpec, Member, Node, Prices, Target

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


class Power:
    """Telemetry of one card that draws 500 W all the time."""

    def __init__(self, watts=500.0):
        self._watts = watts

    def series(self, _entity, field):
        from rackgate.telemetry.table import Series

        moments = np.arange(-2, 40) * SECOND // 2
        if field != "power_w" or self._watts is None:
            return Series(t_ns=np.zeros(0, dtype=np.int64), values=np.zeros(0), reasons=())
        return Series(t_ns=moments, values=np.full(len(moments), self._watts), reasons=())


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
        offers=(Offer(load="l", label="x", looks=(look,)),),
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
