"""Energy of a load's requests, and their cost by the target's prices."""

from __future__ import annotations

from rackgate.metrics.hardware.card_signals import POWER, cards_behind, power_w
from rackgate.metrics.metric import MeasureFunction, Register
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import chosen_samples
from rackgate.metrics.requests.rates import output_token_throughput, request_throughput
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.slo import ONE_VALUE, Slo

_J_PER_KWH = 3.6e6
_S_PER_HOUR = 3600.0


def energy_per_request_j(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Mean power of the cards / request throughput: the energy of one ok request."""
    power = power_w(observation, slo, entity)
    rate = request_throughput(observation, slo, entity)
    broken = next((one for one in (power, rate) if one.value is None), None)
    if broken is not None:
        return missing(slo.metric, entity, slo.unit, broken.reason or Reason.ABSENT, broken.detail)
    if not rate.value:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no request ended in the window")
    return Measurement(
        metric=slo.metric, entity=entity, value=(power.value or 0.0) / rate.value, unit=slo.unit,
        count=rate.count, detail=power.detail, source=power.source,
    )  # fmt: skip


def cost_per_million_output_tokens(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """(Cards x price of a card-hour + their energy x price of a kWh) / output tokens x 1,000,000.

    In the currency of the target's prices, over the steady window.
    """
    return _cost(observation, slo, entity, output_token_throughput, 1e6)


def cost_per_1000_requests(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """(Cards x price of a card-hour + their energy x price of a kWh) / ok requests x 1,000.

    In the currency of the target's prices, over the steady window.
    """
    return _cost(observation, slo, entity, request_throughput, 1e3)


def _cost(
    observation: Observation, slo: Slo, entity: str, rate_of: MeasureFunction, per: float
) -> Measurement:
    prices = observation.target.prices
    if prices is None or (prices.card_hour is None and prices.kwh is None):
        text = "the target has no [prices]: card_hour, kwh"
        return missing(slo.metric, entity, slo.unit, Reason.NOT_CONFIGURED, text)
    rate = rate_of(observation, slo, entity)
    if not rate.value:
        detail = rate.detail if rate.value is None else "nothing was produced in the window"
        return missing(slo.metric, entity, slo.unit, rate.reason or Reason.ABSENT, detail)
    per_s, parts = 0.0, []
    if prices.card_hour is not None:
        cards = _cards_behind(observation, slo, entity)
        if not cards:
            text = "no cards are declared: a card-hour has no meaning"
            return missing(slo.metric, entity, slo.unit, Reason.NOT_CONFIGURED, text)
        per_s += cards * prices.card_hour / _S_PER_HOUR
        parts.append(f"{cards} cards at {prices.card_hour:g} {prices.currency}/h")
    if prices.kwh is not None:
        power = power_w(observation, slo, entity)
        if power.value is None:
            return missing(slo.metric, entity, slo.unit, power.reason or Reason.ABSENT, power.detail)
        per_s += power.value / _J_PER_KWH * prices.kwh
        parts.append(f"{power.value:.0f} W at {prices.kwh:g} {prices.currency}/kWh")
    return Measurement(
        metric=slo.metric, entity=entity, value=per_s / rate.value * per, unit=slo.unit, count=rate.count,
        detail=f"{prices.currency}; {', '.join(parts)}", source=f"load {slo.load}",
    )  # fmt: skip


def _cards_behind(observation: Observation, slo: Slo, entity: str) -> int:
    """Return how many cards the engines occupy that worked on this load."""
    cards = cards_behind(observation, slo, entity)
    worked = entity in cards or chosen_samples(observation, slo, entity).table is not None
    return len(cards) if worked else 0


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    register(
        "energy_per_request_j",
        "J",
        energy_per_request_j,
        statistics=ONE_VALUE,
        windows=("load",),
        needs_load=True,
        inputs=(POWER,),
    )
    register(
        "cost_per_million_output_tokens",
        "currency",
        cost_per_million_output_tokens,
        statistics=ONE_VALUE,
        windows=("load",),
        needs_load=True,
        inputs=("prices",),
    )
    register(
        "cost_per_1000_requests",
        "currency",
        cost_per_1000_requests,
        statistics=ONE_VALUE,
        windows=("load",),
        needs_load=True,
        inputs=("prices",),
    )
