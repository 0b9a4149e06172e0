"""Energy of whole nodes under a load by their management controllers: with fans, hosts and losses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rackgate.metrics.metric import Register
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import chosen_samples, last_label
from rackgate.metrics.requests.rates import output_token_throughput
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.slo import ONE_VALUE, Slo
from rackgate.statistics.series import time_weighted_mean

_FIELD = "chassis_power_w"
_INPUT = f"redfish:{_FIELD}"
_GAP_S = 25.0
_LOOKS_PER_LOAD = 5
"""Controllers are asked every few seconds: of a load that is shorter than so many looks most is guessed."""


def rack_power_w(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Power of the nodes behind the load, from their chassis: time-weighted mean, of several the sum.

    A load that lasted less than five looks at the controller has no value.
    """
    if observation.telemetry is None:
        return missing(slo.metric, entity, slo.unit, Reason.NOT_CONFIGURED, "no telemetry in this run")
    chosen = chosen_samples(observation, slo, entity, label=last_label(observation, slo), timed=False)
    if chosen.table is None:
        why = chosen.why
        return why or missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no load window")
    done = np.asarray(chosen.table.column("done_ns"), dtype=float)
    nodes = _nodes(observation, slo, entity)
    if np.isnan(done).all() or not nodes:
        text = "no request ended: no load window" if nodes else "no node is declared behind the load"
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, text)
    start, end = int(chosen.table.column("scheduled_ns").min()), int(np.nanmax(done))
    total, count = 0.0, 0
    for node in nodes:
        series = observation.telemetry.series(node, _FIELD)
        gap_s = min(_GAP_S, (end - start) / 1e9 / _LOOKS_PER_LOAD)
        mean = time_weighted_mean(series.t_ns, series.values, start_ns=start, end_ns=end, gap_limit_s=gap_s)
        if mean.value is None:
            seldom = f"asked too seldom for a load of {(end - start) / 1e9:.1f} s"
            reason, detail = series.why_missing if series.reasons else (Reason.STALE, seldom)
            return missing(slo.metric, entity, slo.unit, reason, f"{node}: {detail}")
        total += mean.value
        count += int(((series.t_ns >= start) & (series.t_ns <= end)).sum())
    return Measurement(
        metric=slo.metric, entity=entity, value=total, unit=slo.unit, count=count,
        detail=f"chassis of {', '.join(nodes)}", source="redfish",
    )  # fmt: skip


def rack_energy_per_output_token_j(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Mean power of the nodes' chassis / output token throughput: with fans, hosts and losses."""
    power, rate = rack_power_w(observation, slo, entity), output_token_throughput(observation, slo, entity)
    broken = next((one for one in (power, rate) if one.value is None), None)
    if broken is not None:
        return missing(slo.metric, entity, slo.unit, broken.reason or Reason.ABSENT, broken.detail)
    if not rate.value:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no output tokens in the window")
    return replace(power, value=(power.value or 0.0) / rate.value, count=rate.count)


def _nodes(observation: Observation, slo: Slo, entity: str) -> tuple[str, ...]:
    """Return the nodes of an entity's engines that the load reached."""
    reached = observation.reached(slo.load, entity)
    engines = [one for one in observation.target.engines if one.entity in reached]
    return tuple(dict.fromkeys(node for engine in engines for node in engine.nodes))


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    for name, unit, function in (
        ("rack_power_w", "W", rack_power_w),
        ("rack_energy_per_output_token_j", "J/tok", rack_energy_per_output_token_j),
    ):
        register(
            name, unit, function, statistics=ONE_VALUE, windows=("load",), needs_load=True, inputs=(_INPUT,)
        )
