"""Latency of requests: TTFT, TPOT, end to end, jitter, drift, and the instrument's own error."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rackgate.loadgen.results.measurement_quality import token_count_caveat
from rackgate.metrics.metric import Register
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import chosen_samples
from rackgate.metrics.requests.percentile import percentile_of
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.sample import Outcome
from rackgate.nouns.slo import OF_SAMPLES, ONE_VALUE, Slo
from rackgate.statistics.percentiles import nearest_rank, percentile_bounds
from rackgate.statistics.ratios import drift

if TYPE_CHECKING:
    import numpy.typing as npt


_BURST_SHARE = 0.5


def ttft_ms(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """First token - origin: the moment of sending in a closed load, the schedule in an open one.

    Nearest rank over all attempted requests; failed ones count as infinite.
    """
    return percentile_of(observation, slo, entity, "ttft_ms")


def tpot_ms(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """(Last token - first token) / (output tokens - 1), by the server's own token count.

    Where a server counts none its chunks are counted in their place, which the detail says. Not accepted
    where most answers arrived in bursts: a hop that buffers the stream hides the engine.
    """
    chosen = chosen_samples(observation, slo, entity)
    if chosen.table is not None and len(chosen.table):
        bursts = np.asarray(chosen.table.burst, dtype=bool)
        if bursts.mean() > _BURST_SHARE:
            text = f"{int(bursts.sum())} of {len(bursts)} streams arrived in one burst: a hop buffers them"
            return missing(slo.metric, entity, slo.unit, Reason.UNSUPPORTED, text)
    found = percentile_of(observation, slo, entity, "tpot_ms", chosen)
    said = "" if chosen.table is None or found.value is None else token_count_caveat(chosen.table)
    return replace(found, detail="; ".join(filter(None, (found.detail, said))))


def time_to_first_answer_ms(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """First non-empty content - origin: a model that reasons first gives tokens long before it answers.

    Nearest rank over all attempted requests; failed ones count as infinite.
    """
    return percentile_of(observation, slo, entity, "time_to_first_answer_ms")


def e2e_ms(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """End of the answer - origin; failed requests count as infinite."""
    return percentile_of(observation, slo, entity, "e2e_ms")


def jitter_ratio(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """TTFT P95 / TTFT P50 over requests that were ok."""
    values = _ok_values(observation, slo, entity, "ttft_ms")
    if isinstance(values, Measurement):
        return values
    high, middle = nearest_rank(values, 0.95), nearest_rank(values, 0.5)
    if not high or not middle:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no request was ok")
    detail = f"P95 {high:.1f} ms / P50 {middle:.1f} ms"
    return _plain(slo, entity, high / middle, len(values), detail)


def tpot_drift(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """TPOT P50 in the last tenth of the steady window / in its first tenth."""
    chosen = chosen_samples(observation, slo, entity, one_axis=True)
    if chosen.table is None:
        return chosen.why or missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no samples")
    ok = chosen.table.where(chosen.table.labels("outcome").isin((Outcome.OK,)))
    values = np.asarray(ok.column("tpot_ms"), dtype=float)
    moments = np.asarray(ok.column("scheduled_ns"), dtype=np.int64)
    there = ~np.isnan(values)
    look = chosen.looks[-1]
    ratio = drift(
        moments[there],
        values[there],
        start_ns=look.steady_start_ns,
        end_ns=look.steady_end_ns,
        statistic=lambda part: nearest_rank(part, 0.5),
    )
    if ratio is None:
        return missing(
            slo.metric, entity, slo.unit, Reason.TOO_FEW, "no ok request in the first or last tenth"
        )
    return _plain(slo, entity, float(ratio), int(there.sum()), "P50 TPOT, last tenth / first tenth")


def schedule_lag_ms(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Sent - scheduled: how late the load generator itself was, over every request of this very load."""
    if observation.instrument is not None:
        error = observation.instrument
        return replace(_instrument(slo, entity, error.lag_ms, error.reason, error.detail), bounds=None)
    chosen = chosen_samples(observation, slo, entity, timed=False)
    if chosen.table is None:
        return chosen.why or missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no samples")
    lags = np.asarray(chosen.table.column("schedule_lag_ms"), dtype=float)
    # No confidence bounds: all lags of the load are here, there is nothing that they are a sample of.
    return replace(_instrument(slo, entity, lags[~np.isnan(lags)], None, ""), bounds=None)


def measurement_error_ms(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """|Reported TTFT - true TTFT| against a reference server that stamps its own writes on the same clock."""
    error = observation.instrument
    if error is None:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "the instrument was not measured")
    return _instrument(slo, entity, np.abs(error.errors_ms), error.reason, error.detail)


def _instrument(
    slo: Slo, entity: str, values: npt.NDArray[np.float64], reason: Reason | None, detail: str
) -> Measurement:
    if reason is not None:
        return missing(slo.metric, entity, slo.unit, reason, detail)
    value = nearest_rank(values, 0.99)
    if value is None:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no request came back")
    return Measurement(
        metric=slo.metric,
        entity=entity,
        value=value,
        unit=slo.unit,
        count=len(values),
        bounds=percentile_bounds(values, 0.99),
        detail=f"P50 {nearest_rank(values, 0.5):.2f} ms, max {values.max():.2f} ms",
    )


def _ok_values(
    observation: Observation, slo: Slo, entity: str, column: str
) -> npt.NDArray[np.float64] | Measurement:
    probe = percentile_of(observation, slo, entity, column)
    if probe.value is None:
        return probe
    table = chosen_samples(observation, slo, entity).table
    if table is None:
        return probe
    ok = table.labels("outcome").isin((Outcome.OK,))
    values = np.asarray(table.column(column), dtype=float)[ok]
    return np.asarray(values[~np.isnan(values)])


def _plain(slo: Slo, entity: str, value: float, count: int, detail: str) -> Measurement:
    return Measurement(
        metric=slo.metric, entity=entity, value=value, unit=slo.unit, count=count, detail=detail
    )


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    register("ttft_ms", "ms", ttft_ms, statistics=OF_SAMPLES, windows=("load",), needs_load=True)
    register(
        "time_to_first_answer_ms",
        "ms",
        time_to_first_answer_ms,
        statistics=OF_SAMPLES,
        windows=("load",),
        needs_load=True,
    )
    register("tpot_ms", "ms", tpot_ms, statistics=OF_SAMPLES, windows=("load",), needs_load=True)
    register("e2e_ms", "ms", e2e_ms, statistics=OF_SAMPLES, windows=("load",), needs_load=True)
    register("jitter_ratio", "ratio", jitter_ratio, statistics=ONE_VALUE, windows=("load",), needs_load=True)
    register("tpot_drift", "ratio", tpot_drift, statistics=ONE_VALUE, windows=("load",), needs_load=True)
    register(
        "schedule_lag_ms",
        "ms",
        schedule_lag_ms,
        statistics=("p99",),
        windows=("load",),
        needs_load=True,
        inputs=("instrument",),
    )
    register(
        "measurement_error_ms",
        "ms",
        measurement_error_ms,
        statistics=("p99",),
        windows=("load",),
        needs_load=True,
        inputs=("instrument",),
    )
