"""Faults judged on the survivors: detection, recovery, errors and latency while something is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rackgate.measurement import Measurement, Reason, missing
from rackgate.metrics.requests import Chosen, chosen_samples, failed_mask, owners, percentile_of
from rackgate.sample import Outcome
from rackgate.statistics.proportions import proportion_bounds

if TYPE_CHECKING:
    import numpy.typing as npt

    from rackgate.fault import FaultTimeline
    from rackgate.loadgen.table import SampleTable
    from rackgate.metrics.metric import Register
    from rackgate.observation import Observation
    from rackgate.slo import Slo

__all__ = ["register_metrics"]

_CALM_NS = 1_000_000_000
"""A service has recovered when no request scheduled in one whole second failed."""


def detection_s(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Injection of the fault to the scheduled start of the last request that failed before the healing.

    Infinite if requests went on failing until the healing.
    """
    found = _faulted(observation, slo, entity)
    if isinstance(found, Measurement):
        return found
    fault, table = found
    begin, end = _window(fault)
    scheduled = _moments(table, "scheduled_ns")
    failed = failed_mask(table) & (scheduled >= begin) & (scheduled < end)
    if not failed.any():
        return _value(
            slo, entity, 0.0, int(((scheduled >= begin) & (scheduled < end)).sum()), "no request failed"
        )
    last = int(scheduled[failed].max())
    if end - last < _CALM_NS:
        text = f"{int(failed.sum())} requests failed, until the healing: the engine stayed in rotation"
        return _value(slo, entity, float("inf"), int(failed.sum()), text)
    return _value(
        slo, entity, (last - begin) / 1e9, int(failed.sum()), f"{int(failed.sum())} requests failed"
    )


def recovery_s(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Injection of the fault to the moment from which no request failed until the load's end."""
    found = _faulted(observation, slo, entity)
    if isinstance(found, Measurement):
        return found
    fault, table = found
    begin, _ = _window(fault)
    scheduled = _moments(table, "scheduled_ns")
    failed = failed_mask(table) & (scheduled >= begin)
    end = int(scheduled.max())
    last = int(scheduled[failed].max()) if failed.any() else begin
    if end - last < _CALM_NS:
        return _value(slo, entity, float("inf"), int(failed.sum()), "requests failed until the load's end")
    return _value(slo, entity, (last - begin) / 1e9, int((scheduled >= begin).sum()), "then no failure")


def fault_error_rate(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Failed / attempted over all requests scheduled between the fault and its healing."""
    found = _faulted(observation, slo, entity)
    return found if isinstance(found, Measurement) else _rate(slo, entity, _in_window(*found))


def survivor_error_rate(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Failed / attempted over requests of the fault window that engines not hit by the fault answered."""
    found = _faulted(observation, slo, entity)
    if isinstance(found, Measurement):
        return found
    fault, table = found
    inside = _survivors(fault, _in_window(fault, table))
    return _rate(slo, entity, inside)


def survivor_ttft_ms(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """TTFT from the schedule over requests of the fault window that engines not hit answered."""
    found = _faulted(observation, slo, entity)
    if isinstance(found, Measurement):
        return found
    fault, table = found
    inside = _survivors(fault, _in_window(fault, table))
    if not len(inside):
        return missing(
            slo.metric, entity, slo.unit, Reason.ABSENT, "no survivor answered in the fault window"
        )
    chosen = chosen_samples(observation, slo, entity)
    return percentile_of(
        observation, slo, entity, "ttft_ms", Chosen(inside, chosen.looks, chosen.planned_looks)
    )


def healed(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """1 if the entity that was broken gave a token again after the healing, else 0."""
    if not observation.faults:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no fault was injected")
    fault = observation.faults[-1]
    if fault.proven_ns is None:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, _unproven(fault))
    proven = fault.proven_healed_ns is not None
    return _value(
        slo, entity, float(proven), 1, fault.detail or ("gave a token again" if proven else "gave no token")
    )


def _faulted(
    observation: Observation, slo: Slo, entity: str
) -> tuple[FaultTimeline, SampleTable] | Measurement:
    if not observation.faults:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no fault was injected")
    fault = observation.faults[-1]
    if fault.proven_ns is None:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, _unproven(fault))
    chosen = chosen_samples(observation, slo, entity)
    if chosen.table is None:
        why = chosen.why
        reason, detail = (why.reason, why.detail) if why else (None, "no samples")
        return missing(slo.metric, entity, slo.unit, reason or Reason.ABSENT, detail)
    return fault, chosen.table


def _unproven(fault: FaultTimeline) -> str:
    return f"the fault '{fault.kind}' on {fault.entity} had no proven effect: {fault.detail}"


def _window(fault: FaultTimeline) -> tuple[int, int]:
    begin = fault.injected_ns or fault.proven_ns or 0
    return begin, fault.healed_ns or begin


def _in_window(fault: FaultTimeline, table: SampleTable) -> SampleTable:
    begin, end = _window(fault)
    scheduled = _moments(table, "scheduled_ns")
    return table.where((scheduled >= begin) & (scheduled < end))


def _survivors(fault: FaultTimeline, table: SampleTable) -> SampleTable:
    served = owners(table)
    return table.where((served != fault.entity) & (served != ""))


def _rate(slo: Slo, entity: str, table: SampleTable) -> Measurement:
    outcome = np.asarray(table.column("outcome"), dtype=str)
    attempted = int((outcome != Outcome.CANCELLED).sum())
    if not attempted:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no such request in the fault window")
    failed = int(failed_mask(table).sum())
    plain = _value(slo, entity, failed / attempted, attempted, f"{failed} failed")
    return replace(plain, bounds=proportion_bounds(failed, attempted))


def _moments(table: SampleTable, column: str) -> npt.NDArray[np.int64]:
    return np.asarray(table.column(column), dtype=np.int64)


def _value(slo: Slo, entity: str, value: float, count: int, detail: str) -> Measurement:
    return Measurement(
        metric=slo.metric, entity=entity, value=value, unit=slo.unit, count=count, detail=detail
    )


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    register("detection_s", "s", detection_s)
    register("recovery_s", "s", recovery_s)
    register("fault_error_rate", "ratio", fault_error_rate)
    register("survivor_error_rate", "ratio", survivor_error_rate)
    register("survivor_ttft_ms", "ms", survivor_ttft_ms)
    register("healed", "bool", healed)
