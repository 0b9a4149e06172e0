"""Selection of the samples that a row is about, or the reason why there are none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rackgate.loadgen.engine_counters import MAX_CACHED_SHARE, least_cached_share
from rackgate.loadgen.results.dictionary_column import DictionaryColumn
from rackgate.loadgen.results.offered_load import OfferedLoad
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.nouns.load import Load
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.sample import FAILED, Outcome
from rackgate.nouns.slo import Slo
from rackgate.nouns.target import GATEWAY, reaches
from rackgate.statistics.percentiles import nearest_rank

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Chosen:
    """Samples for one row and entity, warm-up left out; `why` holds the measurement if there are none.

    `left_out` counts samples of the rack that quarantined engines answered.
    """

    table: SampleTable | None
    looks: tuple[OfferedLoad, ...]
    planned_looks: int
    why: Measurement | None = None
    left_out: int = 0

    @property
    def remark(self) -> str:
        """Say how many samples of the rack were set aside, if any."""
        return f"{self.left_out} answered by quarantined engines, left out" if self.left_out else ""


def chosen_samples(
    observation: Observation,
    slo: Slo,
    entity: str,
    *,
    label: str | None = None,
    timed: bool = True,
    lag_limit_ms: float | None = None,
    one_axis: bool = False,
) -> Chosen:
    """Return the measured samples of the row's load that belong to the entity.

    In a load that went through the gateway a sample belongs to the engine that said it answered; one
    that nobody owned up to belongs to the rack alone. What is `timed` has no samples if the load
    generator was later than `lag_limit_ms`: its times are not the rack's. If that is not given it is the
    observation's, and what engines took from their prefix caches has no samples either. `one_axis` is for
    what puts moments of different requests, or a signal's, beside each other: it has no samples if the
    clocks of the load machines were not known to that limit.
    """
    load_runs = observation.load_runs_of(slo.load, label)
    looks = tuple(look for one in load_runs if _concerns(one, entity, observation) for look in one.looks)
    if not looks:
        text = f"load '{slo.load}' was not offered to {entity}"
        return Chosen(None, (), 1, missing(slo.metric, entity, slo.unit, Reason.ABSENT, text))
    broken = next((look for look in looks if look.reason is not None or look.samples is None), None)
    if broken is not None:
        reason = broken.reason or Reason.DIED
        return Chosen(None, looks, 1, missing(slo.metric, entity, slo.unit, reason, broken.detail))
    unreconciled = next((look for look in looks if not look.counters.reconciles), None)
    if unreconciled is not None:
        text = f"the load's counters do not reconcile: {unreconciled.counters}"
        return Chosen(None, looks, 1, missing(slo.metric, entity, slo.unit, Reason.INSTRUMENT, text))
    inexact = lateness(looks, lag_limit_ms or observation.lag_limit_ms) if timed else ""
    if one_axis and not inexact:
        inexact = clocks_apart(looks, lag_limit_ms or observation.lag_limit_ms)
    if inexact:
        return Chosen(None, looks, 1, missing(slo.metric, entity, slo.unit, Reason.INSTRUMENT, inexact))
    table = _joined(looks)
    whole = len(table)
    table = _of(table, entity, observation)
    planned = max(1, len(looks[0].load.looks))
    left_out = whole - len(table) if entity == "rack" else 0
    reason, text = Reason.ABSENT, "" if len(table) else f"no sample of load '{slo.load}' belongs to {entity}"
    if not text and timed and lag_limit_ms is None:
        reason, text = Reason.INSTRUMENT, _from_cache(looks, table, entity, observation)
    if text:
        return Chosen(None, looks, planned, missing(slo.metric, entity, slo.unit, reason, text))
    return Chosen(table, looks, planned, left_out=left_out)


def _concerns(load_run: LoadRun, entity: str, observation: Observation) -> bool:
    called = load_run.last.engines
    return entity == "rack" or any(reaches(called, engine) for engine in observation.members(entity))


def _joined(looks: tuple[OfferedLoad, ...]) -> SampleTable:
    """Return the measured samples of all looks."""
    from rackgate.loadgen.results.sample_table import SampleTable

    tables = [look.samples.measured for look in looks if look.samples is not None]
    key = ("joined", *(id(table) for table in tables))  # they live as long as what is joined of them
    return tables[0].once(key, lambda: SampleTable.concat(tables))


def _of(table: SampleTable, entity: str, observation: Observation) -> SampleTable:
    """Return the samples that belong to an entity."""
    if entity == "rack":
        excluded = frozenset(observation.excluded)
        return table.once(("without", excluded), lambda: table.where(~owners(table).isin(excluded)))
    members = frozenset(observation.members(entity))
    return table.once(("of", members), lambda: table.where(owners(table).isin(members)))


def owners(table: SampleTable) -> DictionaryColumn:
    """Return who answered each sample: the engine called, behind a gateway the one that said so, else ''."""
    return table.once("owners", lambda: _owners(table))


def _owners(table: SampleTable) -> DictionaryColumn:
    engine, served = table.labels("engine"), table.labels("served_by")
    through = engine.isin((GATEWAY,))
    if not through.any():
        return engine
    joined = DictionaryColumn.concat([engine, served])
    called, by = joined.codes[: len(engine)], joined.codes[len(engine) :]
    return DictionaryColumn(np.where(through, by, called), joined.names)


def last_label(observation: Observation, slo: Slo) -> str | None:
    """Return the label of the last offer of the row's load: rates of several rounds do not add up."""
    load_runs = observation.load_runs_of(slo.load)
    return load_runs[-1].label if load_runs else None


def steady_windows(
    table: SampleTable,
) -> Iterator[tuple[list[tuple[int, int]], npt.NDArray[np.bool_]]]:
    """Yield, for each engine that was called, the steady window of each look (ns) and its samples.

    From the end of warm-up to the last scheduled start. Each closed loop has its own: a fast engine that
    is done with its share is not measured while a slow one still works.
    """
    called = table.labels("engine")
    windows = table.once("steady windows", lambda: _windows(table))
    for engine, mine in windows.items():
        yield mine, called.isin((engine,))


def _windows(table: SampleTable) -> dict[str, list[tuple[int, int]]]:
    called, look, scheduled = table.labels("engine"), table.column("look"), table.column("scheduled_ns")
    numbers = np.unique(look).tolist() if look.size and look.min() != look.max() else look[:1].tolist()
    found: dict[str, list[tuple[int, int]]] = {}
    for engine in called.counts():
        mine = called.isin((engine,))
        for number in numbers:
            moments = scheduled[mine & (look == number)] if len(numbers) > 1 else scheduled[mine]
            if len(moments):
                found.setdefault(engine, []).append((int(moments.min()), int(moments.max())))
    return found


def outcome_counts(table: SampleTable) -> Mapping[str, int]:
    """Return how many samples had each outcome that occurs."""
    return table.once("outcome counts", lambda: table.labels("outcome").counts())


def failed_mask(table: SampleTable) -> npt.NDArray[np.bool_]:
    """Return which samples count as errors."""
    return table.labels("outcome").isin(FAILED)


def good_mask(table: SampleTable, load: Load) -> npt.NDArray[np.bool_]:
    """Return which samples were ok and inside every per-request bound of their load.

    A TPOT that an answer of one token cannot have breaks no bound.
    """
    bounds = (("ttft_ms", load.ttft_bound_ms), ("tpot_ms", load.tpot_bound_ms), ("e2e_ms", load.e2e_bound_ms))
    return table.once(("good", bounds), lambda: _good(table, bounds))


def _good(table: SampleTable, bounds: tuple[tuple[str, float | None], ...]) -> npt.NDArray[np.bool_]:
    good = table.labels("outcome").isin((Outcome.OK,))
    for column, bound in bounds:
        if bound is not None:
            values = table.column(column)
            within = values <= bound
            good &= (within | np.isnan(values)) if column == "tpot_ms" else within
    return good


def lag_p99_ms(looks: tuple[OfferedLoad, ...]) -> float | None:
    """Return the P99 of sent - scheduled over whole looks, whoever was called."""
    if not any(look.samples is not None for look in looks):
        return None
    table = _joined(looks)
    return table.once("lag_p99_ms", lambda: _p99(table.column("schedule_lag_ms")))


def _p99(values: npt.NDArray[np.float64]) -> float | None:
    return nearest_rank(values[~np.isnan(values)], 0.99)


def lateness(looks: tuple[OfferedLoad, ...], limit_ms: float) -> str:
    """Say why the load generator was too late for its latencies to be the rack's; empty if it was not."""
    lag = lag_p99_ms(looks)
    if lag is not None and lag > limit_ms:
        return f"the load generator sent {lag:.1f} ms late (P99, accepted {limit_ms:g} ms)"
    standstill = max((look.loop_lag_p99_ms or 0.0 for look in looks), default=0.0)
    if standstill > limit_ms:
        return f"the load generator's loop was {standstill:.1f} ms late (P99, accepted {limit_ms:g} ms)"
    return ""


def clocks_apart(looks: tuple[OfferedLoad, ...], limit_ms: float) -> str:
    """Say why moments of different load machines cannot be put in one order; empty if they can."""
    return next((text for look in looks for one in look.clocks if (text := one.problem(limit_ms))), "")


def unlike_the_engine(looks: tuple[OfferedLoad, ...], limit_ms: float) -> str:
    """Say why latencies are not the engines': the load generator was late, or caches answered; else empty."""
    called = {engine for look in looks for engine in look.prefix}
    return lateness(looks, limit_ms) or _cached(looks, _joined(looks), called)


def _from_cache(
    looks: tuple[OfferedLoad, ...], table: SampleTable, entity: str, observation: Observation
) -> str:
    """Say how much of unshared prompts the entity's engines took from their caches; empty if little."""
    mine = {engine for look in looks for engine in look.prefix}
    mine = mine - observation.excluded if entity == "rack" else mine & observation.members(entity)
    return _cached(looks, table, mine)


def _cached(looks: tuple[OfferedLoad, ...], table: SampleTable, mine: Collection[str]) -> str:
    counted = [look.prefix[engine] for look in looks for engine in mine if engine in look.prefix]
    load = looks[-1].load
    share = least_cached_share(counted, load, len(table))
    if share is None or share <= MAX_CACHED_SHARE:
        return ""
    return (
        f"at least {share:.0%} of the prompt tokens came from a prefix cache, though load '{load.name}'"
        f" shares none (accepted {MAX_CACHED_SHARE:.0%}): reading the prompts was not measured"
    )
