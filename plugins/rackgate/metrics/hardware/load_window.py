"""The window of a load on one entity, and telemetry findings in it as measurements."""

from __future__ import annotations

import numpy as np

from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import chosen_samples, clocks_apart
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.slo import Slo
from rackgate.telemetry.window_findings import Finding


def window_of(observation: Observation, slo: Slo, entity: str) -> tuple[int, int] | Measurement:
    """Return begin and end of the row's load as it reached the entity.

    Of one engine that is from its first request to the end of its last one: when it is done with its
    share and another still works, it is idle with good reason.
    """
    engines = {
        one.entity for one in observation.target.engines if entity in (*one.cards, *one.nodes, one.name)
    }
    looks = [look for offer in observation.load_runs_of(slo.load) for look in offer.looks if look.end_ns]
    mine = [look for look in looks if engines & set(look.engines)] or looks
    if not mine:
        text = f"load '{slo.load}' was not offered"
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, text)
    apart = clocks_apart(tuple(mine), observation.lag_limit_ms)
    if apart:
        return missing(slo.metric, entity, slo.unit, Reason.INSTRUMENT, f"no load window: {apart}")
    own = _own_window(observation, slo, engines.pop()) if len(engines) == 1 else None
    return own or (min(look.start_ns for look in mine), max(look.end_ns for look in mine))


def _own_window(observation: Observation, slo: Slo, engine: str) -> tuple[int, int] | None:
    table = chosen_samples(observation, slo, engine, timed=False).table
    if table is None:
        return None
    done = np.asarray(table.column("done_ns"), dtype=float)
    if np.isnan(done).all():
        return None
    start = np.asarray(table.column("scheduled_ns"), dtype=np.int64).min()
    return int(start), int(np.nanmax(done))


def no_telemetry(slo: Slo, entity: str) -> Measurement:
    """Return why there is no value where the run has no telemetry."""
    return missing(slo.metric, entity, slo.unit, Reason.NOT_CONFIGURED, "no telemetry in this run")


def measurement_of(slo: Slo, entity: str, found: Finding) -> Measurement:
    """Return what was found as a measurement; a partial value counts where it breaks the bound already."""
    value = found.value
    if value is None and found.partial is not None and not slo.op.holds(found.partial, slo.bound):
        value = found.partial  # over the limit before the samples ended: more of them cannot undo it
    if value is None:
        return missing(slo.metric, entity, slo.unit, found.reason or Reason.ABSENT, found.detail)
    return Measurement(
        metric=slo.metric,
        entity=entity,
        value=value,
        unit=slo.unit,
        count=found.count,
        detail=found.detail,
        source="telemetry",
        symptoms=found.symptoms,
    )
