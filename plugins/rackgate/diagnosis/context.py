"""What stands beside an unmet row: the conditions that its load shows, and what else happened meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rackgate.diagnosis.conditions import conditions_of
from rackgate.diagnosis.together import happenings_of, seen_at_the_same_time
from rackgate.measurement import Measurement
from rackgate.metrics.requests import chosen_samples
from rackgate.slo import Scope
from rackgate.telemetry.card_checks import clock_symptoms
from rackgate.telemetry.clock_events import FAULT_BITS
from rackgate.telemetry.load_window import window_of

if TYPE_CHECKING:
    from rackgate.loadgen.table import SampleTable
    from rackgate.measurement import Symptom
    from rackgate.observation import Observation
    from rackgate.slo import Check, Slo

__all__ = ["with_what_else"]

_SHOWN = 3
_MOST_WINDOWS = 2000


def with_what_else(check: Check, measurement: Measurement, observation: Observation) -> Measurement:
    """Return the measurement with the conditions of its load and with what was seen in the same seconds.

    These are the seconds of its slow requests, the longest overlap comes first, and it is no proof of a
    cause. Without telemetry, or without a request over the bound, nothing is seen beside it.
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
    happenings = happenings_of(observation.telemetry, observation.faults)
    seen = seen_at_the_same_time(windows, happenings, limit=_SHOWN)
    return replace(measurement, beside=tuple(one.text for one in seen))


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
    """Return from when to when each request ran that was over the bound."""
    if slo.metric not in table.columns:
        return []
    values = np.asarray(table.column(slo.metric), dtype=float)
    start = np.asarray(table.column("scheduled_ns"), dtype=float)
    end = np.asarray(table.column("done_ns"), dtype=float)
    chosen = np.flatnonzero((values > slo.bound) & ~np.isnan(start) & ~np.isnan(end))
    return [(int(start[row]), int(end[row])) for row in chosen[:_MOST_WINDOWS]]
