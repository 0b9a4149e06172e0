"""Outliers: each card and each engine against the median of its peers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rackgate.metrics.hardware.load_window import measurement_of, no_telemetry, window_of
from rackgate.metrics.metric import MeasureFunction, Register
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.latency import tpot_ms, ttft_ms
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.peers import peers_of
from rackgate.nouns.slo import ONE_VALUE, Slo
from rackgate.telemetry.card_checks import busy_median, cap_shortfall, deviation_from_peers, limit_of
from rackgate.telemetry.table import TelemetryTable
from rackgate.telemetry.window_findings import Finding, highest, mean_over

if TYPE_CHECKING:
    Look = Callable[[TelemetryTable, str, int, int], Finding]
    Compare = Callable[[float, float], float]


def _of_cards(definition: str, look: Look, unit: str, compare: Compare) -> MeasureFunction:
    """Return the metric that compares what is looked at of a card with the median of its peers."""

    def measured(observation: Observation, slo: Slo, entity: str) -> Measurement:
        table = observation.telemetry
        if table is None:
            return no_telemetry(slo, entity)
        window = window_of(observation, slo, entity)
        if isinstance(window, Measurement):
            return window
        own = look(table, entity, *window)
        if own.value is None:
            return measurement_of(slo, entity, replace(own, partial=None))
        values: dict[str, float | None] = {entity: own.value}
        for card in peers_of(entity, observation.target):
            # Skip cards that carry no load: quarantined, or used by no engine.
            own_window = window_of(observation, slo, card) if observation.members(card) else None
            if own_window is not None and not isinstance(own_window, Measurement):
                values[card] = look(table, card, *own_window).value
        return measurement_of(slo, entity, _compared(values, entity, unit, compare))

    measured.__doc__ = definition
    return measured


def _of_engines(definition: str, latency: MeasureFunction) -> MeasureFunction:
    """Return the metric that compares an engine's median latency with that of its peers."""

    def measured(observation: Observation, slo: Slo, entity: str) -> Measurement:
        row = replace(slo, statistic="p50", unit="ms")
        own = latency(observation, row, entity)
        if own.value is None:
            return missing(slo.metric, entity, slo.unit, own.reason or Reason.ABSENT, own.detail)
        values: dict[str, float | None] = {entity: own.value}
        for engine in peers_of(entity, observation.target):
            if observation.members(engine):
                values[engine] = latency(observation, row, engine).value
        return measurement_of(slo, entity, _compared(values, entity, "ms", _ratio))

    measured.__doc__ = definition
    return measured


def _compared(values: dict[str, float | None], entity: str, unit: str, compare: Compare) -> Finding:
    found, own = deviation_from_peers(values)[entity], values[entity] or 0.0
    if found.value is None:
        return found
    others = [one for name, one in values.items() if one is not None and name != entity]
    median = float(np.median(others))
    detail = f"{own:.4g} {unit}, the others' median {median:.4g} {unit}"
    return replace(found, value=compare(own, median), detail=detail)


def _ratio(own: float, median: float) -> float:
    return math.inf if math.isinf(own) or (own and not median) else own / median if median else 1.0


def _power(table: TelemetryTable, card: str, start_ns: int, end_ns: int) -> Finding:
    return mean_over(table.series(card, "power_w"), start_ns, end_ns)


def _clock(table: TelemetryTable, card: str, start_ns: int, end_ns: int) -> Finding:
    return busy_median(
        table.series(card, "sm_clock_mhz"), table.series(card, "clock_event_reasons"), start_ns, end_ns
    )


def _temperature(table: TelemetryTable, card: str, start_ns: int, end_ns: int) -> Finding:
    return highest(table.series(card, "temperature_c"), start_ns, end_ns)


def power_cap_shortfall(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """How far a card that its power cap holds back stays below its limit, as a share of it; 0 if none does.

    The limit is its own or the median of its peers', whichever is higher: a cap that was set too low is
    below theirs. Only samples count in which the cap held in the one before too.
    """
    table, window = observation.telemetry, window_of(observation, slo, entity)
    if table is None or isinstance(window, Measurement):
        return window if isinstance(window, Measurement) else no_telemetry(slo, entity)
    peers = (
        limit_of(table.series(card, "power_limit_w"), window[1])
        for card in peers_of(entity, observation.target)
    )
    known = [one for one in peers if one is not None]
    found = cap_shortfall(
        table.series(entity, "power_w"),
        table.series(entity, "clock_event_reasons"),
        table.series(entity, "power_limit_w"),
        *window,
        least_limit_w=float(np.median(known)) if known else 0.0,
    )
    return measurement_of(slo, entity, found)


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    clocks = ("card:sm_clock_mhz", "card:clock_event_reasons")
    for name, unit, inputs, function in (
        (
            "temperature_deviation_c",
            "°C",
            ("card:temperature_c",),
            _of_cards(
                "Highest temperature during the load - median of its peers' highest.",
                _temperature,
                "°C",
                lambda own, median: own - median,
            ),
        ),
        (
            "sm_clock_to_peers",
            "ratio",
            clocks,
            _of_cards(
                "Median SM clock of the samples in which the card is not idle / median of its peers'.",
                _clock,
                "MHz",
                _ratio,
            ),
        ),
        (
            "power_deviation",
            "ratio",
            ("card:power_w",),
            _of_cards(
                "Distance of mean power from the median of its peers', as a share of that.",
                _power,
                "W",
                lambda own, median: abs(_ratio(own, median) - 1),
            ),
        ),
        (
            "power_cap_shortfall",
            "ratio",
            ("card:clock_event_reasons", "card:power_w", "card:power_limit_w"),
            power_cap_shortfall,
        ),
        ("ttft_to_peers", "ratio", (), _of_engines("TTFT P50 of an engine / median of its peers'.", ttft_ms)),
        ("tpot_to_peers", "ratio", (), _of_engines("TPOT P50 of an engine / median of its peers'.", tpot_ms)),
    ):
        register(
            name,
            unit,
            function,
            statistics=ONE_VALUE,
            windows=("load",),
            needs_load=True,
            inputs=inputs,
        )
