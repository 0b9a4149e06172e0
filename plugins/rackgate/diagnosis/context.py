"""The context of an unmet check: the conditions of its load, and the events in its slow or failed seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rackgate.diagnosis.co_occurring_events import CoOccurringEvent, co_occurring_events, gateway_imbalance
from rackgate.diagnosis.conditions import conditions_of
from rackgate.diagnosis.correlate import correlate
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.metrics.hardware.load_window import window_of
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import chosen_samples, failed_mask
from rackgate.nouns.measurement import Measurement, Symptom
from rackgate.nouns.slo import Check, Scope, Slo
from rackgate.telemetry.card_checks import clock_symptoms
from rackgate.telemetry.cards.clock_events import FAULT_BITS

_MOST_CORRELATIONS = 8
_MOST_WINDOWS = 2000
_FAILURE_METRICS = ("error_rate", "offered_share")
_WHOLE_ENGINE_METRICS = ("ttft_to_peers", "tpot_to_peers")
"""Where an engine as a whole is slower than its peers, each of its requests is."""


def with_context(check: Check, measurement: Measurement, observation: Observation) -> Measurement:
    """Return an unmet measurement with the symptoms of its load and the correlated events in `beside`.

    Without telemetry, or without a slow or failed request, `beside` stays as it is.
    """
    found = (*conditions_of(check.slo, check.entity, observation), *_clock_faults(check, observation))
    known = {symptom.key for symptom in measurement.symptoms}
    new = tuple(symptom for symptom in found if symptom.key not in known)
    measurement = replace(measurement, symptoms=(*measurement.symptoms, *new))
    samples = chosen_samples(observation, check.slo, check.entity).table
    if samples is None or observation.telemetry is None:
        return measurement
    windows = _unmet_windows(samples, check.slo)
    if not windows:
        return measurement
    events = (
        *co_occurring_events(observation.telemetry, observation.faults),
        *_imbalances(check.slo, observation),
    )
    correlations = correlate(windows, events, limit=_MOST_CORRELATIONS)
    return replace(measurement, beside=tuple(correlation.text for correlation in correlations))


def _imbalances(slo: Slo, observation: Observation) -> Iterator[CoOccurringEvent]:
    """Yield the imbalances of the whole load: the requests of a single entity cannot show them."""
    engines = [spec.entity for spec in observation.target.engines if spec.entity not in observation.excluded]
    for load_run in observation.load_runs_of(slo.load):
        for look in load_run.looks:
            if look.samples is not None:
                yield from gateway_imbalance(look.samples.measured, engines)


def _clock_faults(check: Check, observation: Observation) -> tuple[Symptom, ...]:
    """Return the fault bits among the clock events of a card during the row's load."""
    if check.slo.scope is not Scope.CARD or check.slo.load is None or observation.telemetry is None:
        return ()
    window = window_of(observation, check.slo, check.entity)
    if isinstance(window, Measurement):
        return ()
    series = observation.telemetry.series(check.entity, "clock_event_reasons")
    return clock_symptoms(series, *window, FAULT_BITS)


def _unmet_windows(samples: SampleTable, slo: Slo) -> list[tuple[int, int]]:
    """Return start and end (ns) of the requests over the bound; of a row of failures, those that failed."""
    if slo.metric in _FAILURE_METRICS:
        unmet = failed_mask(samples)
    elif slo.metric in _WHOLE_ENGINE_METRICS:
        unmet = np.ones(len(samples), dtype=bool)
    elif slo.metric in samples.columns:
        unmet = np.asarray(samples.column(slo.metric), dtype=float) > slo.bound
    else:
        return []
    start = np.asarray(samples.column("scheduled_ns"), dtype=float)
    end = np.asarray(samples.column("done_ns"), dtype=float)
    chosen = np.flatnonzero(unmet & ~np.isnan(start) & ~np.isnan(end))
    return [(int(start[row]), int(end[row])) for row in chosen[:_MOST_WINDOWS]]
