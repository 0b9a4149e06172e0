"""What puts moments of several load machines in one order needs clocks that are known; durations do not."""

from dataclasses import replace

import pytest

from rackgate.loadgen.machine_clock import ClockReading, MachineClock
from rackgate.metrics.requests import latency, rates
from rackgate.nouns.measurement import Reason


@pytest.fixture
def from_machines(seen, request_of):
    """Forty requests that came from a load machine whose clock went wrong by so many ms."""

    def from_machines(wrong_ms):
        readings = tuple(
            ClockReading(
                at_ns=number * 40_000_000_000, offset_ns=round(offset_ms * 1e6), uncertainty_ns=200_000
            )
            for number, offset_ms in enumerate((0.0, wrong_ms))
        )
        observation = seen([request_of(number, ttft_ms=20.0, e2e_ms=40.0) for number in range(40)])
        (offer,) = observation.load_runs
        look = replace(offer.last, clocks=(MachineClock(machine="lm1", readings=readings),))
        look = replace(look, steady_start_ns=0, steady_end_ns=39_000_000_000)
        return replace(observation, load_runs=(replace(offer, looks=(look,)),))

    return from_machines


@pytest.mark.parametrize(
    ("function", "unit"),
    [
        (rates.request_throughput, "1/s"),
        (rates.output_token_throughput, "tok/s"),
        (latency.tpot_drift, "ratio"),
    ],
)
def test_an_order_of_moments_is_unknown_where_a_clock_went_wrong(from_machines, check_of, function, unit):
    check = check_of(function.__name__, unit)
    good = function(from_machines(1.0), check.slo, check.entity)
    wrong = function(from_machines(300.0), check.slo, check.entity)
    assert (None, Reason.INSTRUMENT) == (good.reason, wrong.reason)
    assert "the clock of load machine lm1 went 300.0 ms wrong within 40.0 s" == wrong.detail


def test_a_latency_is_a_difference_on_one_clock(from_machines, check_of):
    check = check_of("ttft_ms", "ms", statistic="p50")
    assert 20.0 == latency.ttft_ms(from_machines(300.0), check.slo, check.entity).value
