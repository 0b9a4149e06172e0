"""What stands beside an unmet row: the conditions that its load shows, and what else happened meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rackgate.diagnosis.co_occurring_events import Happening, happenings_of
from rackgate.diagnosis.conditions import conditions_of
from rackgate.diagnosis.correlate import seen_at_the_same_time
from rackgate.diagnosis.imbalance import imbalance_of
from rackgate.loadgen.results.table import SampleTable
from rackgate.metrics.hardware.load_window import window_of
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import chosen_samples, failed_mask
from rackgate.nouns.measurement import Measurement, Symptom
from rackgate.nouns.slo import Check, Scope, Slo
from rackgate.telemetry.card_checks import clock_symptoms
from rackgate.telemetry.cards.clock_events import FAULT_BITS

_KEPT = 8
_MOST_WINDOWS = 2000
_OF_FAILURES = ("error_rate", "offered_share")
_OF_ALL = ("ttft_to_peers", "tpot_to_peers")
"""Where an engine as a whole is slower than its peers, each of its requests is."""


def with_what_else(check: Check, measurement: Measurement, observation: Observation) -> Measurement:
    """Return the measurement with the conditions of its load and with what was seen in the same seconds.

    These are the seconds of its slow or failed requests, the longest overlap comes first, and it is no proof
    of a cause. Without telemetry, or without such a request, nothing is seen beside it.
    """
    found = (*conditions_of(check.slo, check.entity, observation), *_slowdowns(check, observation))
    known = {one.key for one in measurement.symptoms}
    symptoms = (*measurement.symptoms, *(one for one in found if one.key not in known))
    measurement = replace(measurement, symptoms=symptoms)
    table = chosen_samples(observation, check.slo, check.entity).table
    if table is None or observation.telemetry is None:
        return measurement
    windows = _slow(table, check.slo)
    if not windows:
        return measurement
    happenings = (
        *happenings_of(observation.telemetry, observation.faults),
        *_imbalances(check.slo, observation),
    )
    seen = seen_at_the_same_time(windows, happenings, limit=_KEPT)
    return replace(measurement, beside=tuple(one.text for one in seen))


def _imbalances(slo: Slo, observation: Observation) -> Iterator[Happening]:
    """Yield where the gateway was unfair, over all of the load: an entity's own part cannot show it."""
    there = [one.entity for one in observation.target.engines if one.entity not in observation.excluded]
    for offer in observation.load_runs_of(slo.load):
        for look in offer.looks:
            if look.samples is not None:
                yield from imbalance_of(look.samples.measured, there)


def _slowdowns(check: Check, observation: Observation) -> tuple[Symptom, ...]:
    """Return the fault bits that the clocks of a card had during the row's load."""
    if check.slo.scope is not Scope.CARD or check.slo.load is None or observation.telemetry is None:
        return ()
    window = window_of(observation, check.slo, check.entity)
    if isinstance(window, Measurement):
        return ()
    series = observation.telemetry.series(check.entity, "clock_event_reasons")
    return clock_symptoms(series, *window, FAULT_BITS)


def _slow(table: SampleTable, slo: Slo) -> list[tuple[int, int]]:
    """Return from when to when each request ran that was over the bound, or failed if that is counted."""
    if slo.metric in _OF_FAILURES:
        over = failed_mask(table)
    elif slo.metric in _OF_ALL:
        over = np.ones(len(table), dtype=bool)
    elif slo.metric in table.columns:
        over = np.asarray(table.column(slo.metric), dtype=float) > slo.bound
    else:
        return []
    start = np.asarray(table.column("scheduled_ns"), dtype=float)
    end = np.asarray(table.column("done_ns"), dtype=float)
    chosen = np.flatnonzero(over & ~np.isnan(start) & ~np.isnan(end))
    return [(int(start[row]), int(end[row])) for row in chosen[:_MOST_WINDOWS]]
