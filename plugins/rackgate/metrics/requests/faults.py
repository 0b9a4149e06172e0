"""Faults judged on the survivors: detection, recovery, errors and latency while something is broken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rackgate.loadgen.results.dictionary_column import DictionaryColumn
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.metrics.metric import Register
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import Chosen, chosen_samples, failed_mask, owners
from rackgate.metrics.requests.percentile import percentile_of
from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.sample import Outcome
from rackgate.nouns.slo import OF_SAMPLES, ONE_VALUE, Slo
from rackgate.statistics.proportions import proportion_bounds

if TYPE_CHECKING:
    import numpy.typing as npt


_CALM_REQUESTS = 10
"""So many requests in a row must be ok before a failure counts as the last one."""

_GOOD_BASELINE = 0.95
"""Share of ok requests before the fault, below which the rack was broken already."""

_LAG_SHARE = 0.02
"""Of a bound in seconds, what the load generator's own lateness may be."""


def detection_s(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Injection of the fault to the last request that failed before the healing.

    Infinite if requests went on failing until the healing.
    """
    seen = _seen(observation, slo, entity, lag_limit_ms=_lag_limit_ms(observation, slo))
    if isinstance(seen, Measurement):
        return seen
    failed = seen.inside & seen.failed
    count = int(failed.sum())
    if not count:
        return _value(slo, entity, 0.0, int(seen.inside.sum()), "no request failed")
    last = int(seen.scheduled[failed].max())
    if int((seen.inside & ~seen.failed & (seen.scheduled > last)).sum()) < _CALM_REQUESTS:
        text = f"{count} requests failed, until the healing: the engine stayed in rotation"
        return _value(slo, entity, float("inf"), count, text)
    return _value(slo, entity, max(0.0, last - seen.begin) / 1e9, count, f"{count} requests failed")


def recovery_s(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Injection of the fault to the moment from which nothing failed and the broken engine answered again.

    Infinite if requests failed until the load's end, or if the engine never came back into rotation.
    """
    seen = _seen(observation, slo, entity, lag_limit_ms=_lag_limit_ms(observation, slo))
    if isinstance(seen, Measurement):
        return seen
    if seen.owner.isin(("",)).all():
        text = "no answer says who served it: whether the engine came back cannot be seen"
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, text)
    since = seen.ended > seen.begin
    failed = seen.failed & since
    last = int(seen.scheduled[failed].max()) if failed.any() else seen.begin
    if int((~seen.failed & (seen.scheduled > last)).sum()) < _CALM_REQUESTS:
        text = "requests failed until the load's end"
        return _value(slo, entity, float("inf"), int(failed.sum()), text)
    back = ~seen.failed & seen.owner.isin((seen.fault.entity,)) & (seen.scheduled >= seen.end)
    if not back.any():
        text = f"{seen.fault.entity} never came back into rotation"
        return _value(slo, entity, float("inf"), int(since.sum()), text)
    moment = max(last, int(seen.scheduled[back].min()))
    text = f"{seen.fault.entity} answered {int(back.sum())} requests after the healing"
    return _value(slo, entity, max(0.0, moment - seen.begin) / 1e9, int(since.sum()), text)


def fault_error_rate(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Failed / attempted over all requests that were due or under way between the fault and its healing."""
    seen = _seen(observation, slo, entity, timed=False)
    return seen if isinstance(seen, Measurement) else _rate(slo, entity, seen.table.where(seen.inside))


def survivor_error_rate(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Failed / attempted over requests of the fault window that the broken engine did not answer.

    A failure that nobody owns up to counts against the survivors.
    """
    seen = _seen(observation, slo, entity, timed=False)
    if isinstance(seen, Measurement):
        return seen
    return _strangers(seen, observation, slo, entity) or _rate(slo, entity, seen.survivors)


def survivor_ttft_ms(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """TTFT from the schedule over requests of the fault window that the broken engine did not answer."""
    seen = _seen(observation, slo, entity)
    if isinstance(seen, Measurement):
        return seen
    stranger = _strangers(seen, observation, slo, entity)
    if stranger is not None:
        return stranger
    if not len(seen.survivors):
        return missing(
            slo.metric, entity, slo.unit, Reason.ABSENT, "no survivor answered in the fault window"
        )
    chosen = chosen_samples(observation, slo, entity)
    if chosen.table is None:
        return chosen.why or missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no samples")
    survivors = Chosen(seen.survivors, chosen.looks, chosen.planned_looks)
    return percentile_of(observation, slo, entity, "ttft_ms", survivors)


def healed(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """1 if the entity that was broken gave a token again after the healing, else 0."""
    if not observation.faults:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no fault was injected")
    fault = observation.faults[-1]
    if fault.proven_ns is None:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, _unproven(fault))
    proven = fault.proven_healed_ns is not None
    text = fault.detail or ("gave a token again" if proven else "gave no token")
    return _value(slo, entity, float(proven), 1, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The requests around a proven fault; moments in ns, one entry a request."""

    fault: FaultTimeline
    table: SampleTable
    begin: int
    end: int
    scheduled: npt.NDArray[np.int64]
    ended: npt.NDArray[np.float64]
    failed: npt.NDArray[np.bool_]
    owner: DictionaryColumn

    @property
    def inside(self) -> npt.NDArray[np.bool_]:
        """Due or under way between the fault and its healing."""
        return np.asarray((self.scheduled < self.end) & (self.ended > self.begin))

    @property
    def survivors(self) -> SampleTable:
        """Requests inside that the broken engine did not answer."""
        return self.table.where(self.inside & ~self.owner.isin((self.fault.entity,)))


def _lag_limit_ms(observation: Observation, slo: Slo) -> float:
    """Return the lateness that a moment judged in seconds can bear."""
    return max(observation.lag_limit_ms, _LAG_SHARE * slo.bound * 1000)


def _seen(
    observation: Observation,
    slo: Slo,
    entity: str,
    *,
    timed: bool = True,
    lag_limit_ms: float | None = None,
) -> _Seen | Measurement:
    if not observation.faults:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no fault was injected")
    fault = observation.faults[-1]
    if fault.proven_ns is None or fault.injected_ns is None:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, _unproven(fault))
    chosen = chosen_samples(observation, slo, entity, timed=timed, lag_limit_ms=lag_limit_ms, one_axis=True)
    if chosen.table is None:
        why = chosen.why
        reason, detail = (why.reason, why.detail) if why else (None, "no samples")
        return missing(slo.metric, entity, slo.unit, reason or Reason.ABSENT, detail)
    table, begin_ns = chosen.table, fault.injected_ns
    seen = table.once(("seen", fault), lambda: _around(table, fault, begin_ns))
    before = seen.ended < seen.begin
    good = float((~seen.failed[before]).mean()) if before.any() else 0.0
    if good < _GOOD_BASELINE:
        text = f"broken already: {good:.0%} of {int(before.sum())} requests before the fault were ok"
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, text)
    return seen


def _around(table: SampleTable, fault: FaultTimeline, begin_ns: int) -> _Seen:
    scheduled = np.asarray(table.column("scheduled_ns"), dtype=np.int64)
    done = np.asarray(table.column("done_ns"), dtype=float)
    return _Seen(
        fault=fault,
        table=table,
        begin=begin_ns,
        end=fault.healed_ns or begin_ns,
        scheduled=scheduled,
        ended=np.where(np.isnan(done), scheduled.astype(float), done),
        failed=failed_mask(table),
        owner=owners(table),
    )


def _strangers(seen: _Seen, observation: Observation, slo: Slo, entity: str) -> Measurement | None:
    known = {engine.entity for engine in observation.target.engines} | {""}
    unknown = sorted(set(seen.owner[seen.inside].counts()) - known)
    if not unknown:
        return None
    text = f"answered by {', '.join(unknown[:3])}, which the target does not declare"
    return missing(slo.metric, entity, slo.unit, Reason.ABSENT, text)


def _unproven(fault: FaultTimeline) -> str:
    return f"the fault '{fault.kind}' on {fault.entity} had no proven effect: {fault.detail}"


def _rate(slo: Slo, entity: str, table: SampleTable) -> Measurement:
    attempted = len(table) - table.labels("outcome").counts().get(Outcome.CANCELLED, 0)
    if not attempted:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no such request in the fault window")
    failed = int(failed_mask(table).sum())
    plain = _value(slo, entity, failed / attempted, attempted, f"{failed} failed")
    return replace(plain, bounds=proportion_bounds(failed, attempted))


def _value(slo: Slo, entity: str, value: float, count: int, detail: str) -> Measurement:
    return Measurement(
        metric=slo.metric, entity=entity, value=value, unit=slo.unit, count=count, detail=detail
    )


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    register(
        "detection_s",
        "s",
        detection_s,
        statistics=ONE_VALUE,
        windows=("fault",),
        needs_load=True,
        inputs=("fault",),
    )
    register(
        "recovery_s",
        "s",
        recovery_s,
        statistics=ONE_VALUE,
        windows=("recovery",),
        needs_load=True,
        inputs=("fault",),
    )
    register(
        "fault_error_rate",
        "ratio",
        fault_error_rate,
        statistics=ONE_VALUE,
        windows=("fault",),
        needs_load=True,
        inputs=("fault",),
    )
    register(
        "survivor_error_rate",
        "ratio",
        survivor_error_rate,
        statistics=ONE_VALUE,
        windows=("fault",),
        needs_load=True,
        inputs=("fault",),
    )
    register(
        "survivor_ttft_ms",
        "ms",
        survivor_ttft_ms,
        statistics=OF_SAMPLES,
        windows=("fault",),
        needs_load=True,
        inputs=("fault",),
    )
    register("healed", "bool", healed, statistics=ONE_VALUE, windows=("recovery",), inputs=("fault",))
