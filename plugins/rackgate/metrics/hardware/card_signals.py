"""The card's own signals during a load: temperature, power, throttling and energy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rackgate.metrics.metric import MeasureFunction, Register
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import chosen_samples, last_label
from rackgate.metrics.requests.rates import output_token_throughput
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.slo import ONE_VALUE, Slo
from rackgate.statistics.series import (
    energy_from_counter_j,
    last_fifth_mean,
    throttle_time_s,
    time_weighted_mean,
)
from rackgate.telemetry.card_checks import THROTTLE_COUNTERS, clock_symptoms, throttle_by_counters_s
from rackgate.telemetry.cards.clock_events import FAULT_BITS
from rackgate.telemetry.table import Series
from rackgate.telemetry.window_findings import Finding

POWER = "card:energy_j|card:power_w"
"""What the power of a card is made from."""

_THROTTLE = "|".join(f"card:{name}" for name in ("clock_event_reasons", *THROTTLE_COUNTERS))

_WITHOUT_COUNTER = {"mask": 0x8, "unless": 0x40 | 0x80}
"""Hardware slowdown has no counter of its own; with these bits it is in theirs."""


def temperature_c(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Time-weighted mean temperature over the last fifth of the load; of several cards the hottest."""
    return _worst(observation, slo, entity, _temperature)


def power_w(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Energy counter difference / time, else the time-weighted mean of samples; of several cards the sum."""
    cards = cards_behind(observation, slo, entity)
    values = [_power(observation, slo, card) for card in cards]
    broken = next((one for one in values if one.value is None), None)
    if broken is not None:
        detail = f"{broken.entity}: {broken.detail}" if entity != broken.entity else broken.detail
        return missing(slo.metric, entity, slo.unit, broken.reason or Reason.ABSENT, detail)
    if not values:
        return missing(slo.metric, entity, slo.unit, Reason.NOT_CONFIGURED, "no cards are declared")
    total = sum(one.value or 0.0 for one in values)
    found = _value(slo, entity, total, sum(one.count for one in values), values[0].detail)
    return replace(found, source=_sources(observation, cards))


def throttle_time(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Time slowed by heat, hardware or power brake (clock_event_reasons & 0xE8).

    By the driver's own counters where they are read, which see what lies between two samples, with the
    time of the samples in which hardware slows the card for a reason that no counter has (0x8 without 0x40
    and 0x80); else the time of the samples in which a bit of the mask stands.
    """
    return _worst(observation, slo, entity, _throttle)


def energy_per_output_token_j(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Mean power of the cards / output token throughput."""
    power, rate = power_w(observation, slo, entity), output_token_throughput(observation, slo, entity)
    broken = next((one for one in (power, rate) if one.value is None), None)
    if broken is not None:
        return missing(slo.metric, entity, slo.unit, broken.reason or Reason.ABSENT, broken.detail)
    if not rate.value:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no output tokens in the window")
    return replace(power, value=(power.value or 0.0) / rate.value, count=rate.count, detail="")


def _worst(observation: Observation, slo: Slo, entity: str, measure_card: MeasureFunction) -> Measurement:
    values = [measure_card(observation, slo, card) for card in cards_behind(observation, slo, entity)]
    broken = next((one for one in values if one.value is None), None)
    if broken is not None:
        detail = f"{broken.entity}: {broken.detail}" if entity != broken.entity else broken.detail
        return missing(slo.metric, entity, slo.unit, broken.reason or Reason.ABSENT, detail)
    if not values:
        return missing(slo.metric, entity, slo.unit, Reason.NOT_CONFIGURED, "no cards are declared")
    worst = max(values, key=lambda one: one.value or 0.0)
    detail = f"{worst.entity}; {worst.detail}" if len(values) > 1 else worst.detail
    found = _value(slo, entity, worst.value or 0.0, worst.count, detail)
    return replace(found, symptoms=worst.symptoms, source=_sources(observation, (worst.entity,)))


def cards_behind(observation: Observation, slo: Slo, entity: str) -> tuple[str, ...]:
    """Return the card itself, or the cards of an entity's engines that the load reached."""
    cards = [card.name for card in observation.target.cards]
    if entity in cards:
        return (entity,)
    reached = observation.reached(slo.load, entity)
    held = {card for one in observation.target.engines if one.entity in reached for card in one.cards}
    return tuple(card for card in cards if card in held)


def _sources(observation: Observation, cards: tuple[str, ...]) -> str:
    """Return what was asked for the signals of these cards, each source once."""
    target = observation.target
    nodes = {card.name: node for node in target.nodes for card in node.cards}
    return ", ".join(dict.fromkeys(nodes[card].cards_read_from(target.prometheus_url) for card in cards))


def _temperature(observation: Observation, slo: Slo, card: str) -> Measurement:
    found = _series(observation, slo, card, "temperature_c")
    if isinstance(found, Measurement):
        return found
    series, start, end = found
    mean = last_fifth_mean(
        series.t_ns, series.values, start_ns=start, end_ns=end, gap_limit_s=observation.sample_gap_s
    )
    if mean.value is None:
        return _uncovered(slo, card, series)
    inside = (series.t_ns >= start) & (series.t_ns <= end)
    peak = np.nanmax(series.values[inside]) if inside.any() else mean.value
    return _value(slo, card, mean.value, int(inside.sum()), f"peak {peak:.1f} °C")


def _power(observation: Observation, slo: Slo, card: str) -> Measurement:
    found = _series(observation, slo, card, "power_w")
    if isinstance(found, Measurement):
        return found
    series, start, end = found
    gap = observation.sample_gap_s
    inside = int(((series.t_ns >= start) & (series.t_ns <= end)).sum())
    mean = time_weighted_mean(series.t_ns, series.values, start_ns=start, end_ns=end, gap_limit_s=gap)
    if mean.value is None:
        return _uncovered(slo, card, series)
    counter = _series(observation, slo, card, "energy_j")
    if not isinstance(counter, Measurement):
        energy = energy_from_counter_j(
            counter[0].t_ns, counter[0].values, start_ns=start, end_ns=end, gap_limit_s=gap
        )
        if energy:
            return _value(slo, card, energy / ((end - start) / 1e9), inside, "from the energy counter")
    return _value(slo, card, mean.value, inside, "time-weighted mean of samples")


def _throttle(observation: Observation, slo: Slo, card: str) -> Measurement:
    found = _series(observation, slo, card, "clock_event_reasons")
    if isinstance(found, Measurement):
        return found
    series, start, end = found
    counted = Finding(value=None)
    if observation.telemetry is not None:
        counted = throttle_by_counters_s(observation.telemetry, card, start, end)
    by_counters = counted.value is not None
    seen = throttle_time_s(
        series.t_ns,
        series.values,
        start_ns=start,
        end_ns=end,
        gap_limit_s=observation.sample_gap_s,
        **(_WITHOUT_COUNTER if by_counters else {}),
    )
    parts = (counted.value, seen.partial) if by_counters else (counted.partial, seen.partial)
    known = [one for one in parts if one is not None]
    total = (sum(known) if by_counters else max(known)) if known else None
    if total is None or (seen.value is None and slo.op.holds(total, slo.bound)):
        return _uncovered(slo, card, series)  # throttling that was seen fails, whatever was not covered
    inside = (series.t_ns >= start) & (series.t_ns <= end) & ~np.isnan(series.values)
    bits = int(np.bitwise_or.reduce(series.values[inside].astype(np.int64))) if inside.any() else 0
    words = [f"bits seen 0x{bits:x}"]
    if by_counters:
        words = [f"by the driver's counters{': ' if counted.detail else ''}{counted.detail}"]
        words += [f"hw_slowdown that no counter has {seen.partial:.3f} s"] if seen.partial else []
    count = counted.count if by_counters else int(inside.sum())
    symptoms = counted.symptoms if by_counters else ()
    bits_of_fault = _WITHOUT_COUNTER["mask"] if by_counters else FAULT_BITS
    symptoms += clock_symptoms(series, start, end, bits_of_fault) if seen.partial else ()
    return replace(_value(slo, card, total, count, "; ".join(words)), symptoms=symptoms)


def _series(
    observation: Observation, slo: Slo, card: str, field: str
) -> tuple[Series, int, int] | Measurement:
    if observation.telemetry is None:
        return missing(slo.metric, card, slo.unit, Reason.NOT_CONFIGURED, "no telemetry in this run")
    window = _window(observation, slo, card)
    if isinstance(window, Measurement):
        return window
    return (observation.telemetry.series(card, field), *window)


def _window(observation: Observation, slo: Slo, card: str) -> tuple[int, int] | Measurement:
    engine = next((one.entity for one in observation.target.engines if card in one.cards), card)
    label = last_label(observation, slo)
    chosen = chosen_samples(observation, slo, engine, label=label, timed=False, one_axis=True)
    if chosen.table is None:
        why = chosen.why
        reason, detail = (why.reason, why.detail) if why else (None, "")
        return missing(slo.metric, card, slo.unit, reason or Reason.ABSENT, f"no load window: {detail}")
    start = int(np.asarray(chosen.table.column("scheduled_ns"), dtype=np.int64).min())
    done = np.asarray(chosen.table.column("done_ns"), dtype=float)
    if np.isnan(done).all():
        return missing(slo.metric, card, slo.unit, Reason.ABSENT, "no request ended: no load window")
    return start, int(np.nanmax(done))


def _uncovered(slo: Slo, card: str, series: Series) -> Measurement:
    if series.reasons:
        reason, detail = series.why_missing
        return missing(slo.metric, card, slo.unit, reason, detail)
    text = f"{len(series.t_ns)} samples cover less than 90 % of the load"
    return missing(slo.metric, card, slo.unit, Reason.STALE, text)


def _value(slo: Slo, entity: str, value: float, count: int, detail: str) -> Measurement:
    return Measurement(
        metric=slo.metric,
        entity=entity,
        value=float(value),
        unit=slo.unit,
        count=count,
        detail=detail,
    )


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    for name, unit, function, needed in (
        ("temperature_c", "°C", temperature_c, ("card:temperature_c",)),
        ("power_w", "W", power_w, (POWER,)),
        ("throttle_time_s", "s", throttle_time, ("card:clock_event_reasons", _THROTTLE)),
        ("energy_per_output_token_j", "J/tok", energy_per_output_token_j, (POWER,)),
    ):
        register(
            name,
            unit,
            function,
            statistics=ONE_VALUE,
            windows=("load",),
            needs_load=True,
            inputs=needed,
        )
