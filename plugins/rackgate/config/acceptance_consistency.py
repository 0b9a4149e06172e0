"""Consistency of acceptance rows: unknown names, impossible bounds, loads too short for their percentile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from rackgate.checks.plan import CONDITIONS, not_asked
from rackgate.config.problems import nearest
from rackgate.metrics.metric import Metric
from rackgate.nouns.entities import entities_of, members_of
from rackgate.nouns.load import Load
from rackgate.nouns.slo import STAGES, THROUGH_GATEWAY, Op, Scope, Severity, Slo
from rackgate.nouns.target import Target
from rackgate.probes.probe import probe_of

_SIGNED = ("temperature_c",)
_ONE_STREAM = tuple(stage for stage in THROUGH_GATEWAY if stage != "batch_retry")
"""Stages whose load is one stream shared by all engines; a batch is no load."""

_ONLY_LOAD = {"selfcheck": "reference", "fault_injection": "fault"}
"""Stages that offer one fixed load."""


def unknown_names(
    raw: Mapping[str, Any], where: str, loads: Iterable[str], metrics: Mapping[str, Metric]
) -> list[str]:
    """Return the unknown names in a raw row, and a unit that is not the metric's."""
    if raw.get("disabled") is True:
        return []
    problems = []
    stage, dot, _ = str(raw.get("id")).partition(".")
    if dot and stage not in STAGES:
        problems.append(f"{where}: no stage '{stage}'{nearest(stage, STAGES)}")
    metric, unit, load, conditions = (raw.get(name) for name in ("metric", "unit", "load", "applies_to"))
    if isinstance(metric, str) and metric not in metrics:
        problems.append(f"{where}.metric: no metric '{metric}'{nearest(metric, metrics)}")
    elif isinstance(metric, str) and isinstance(unit, str) and metrics[metric].unit != unit:
        problems.append(f"{where}.unit: '{unit}', but {metric} is measured in '{metrics[metric].unit}'")
    known = tuple(loads)
    if isinstance(load, str) and load not in known:
        problems.append(f"{where}.load: no load '{load}'{nearest(load, known)}")
    problems += [
        f"{where}.applies_to.{name}: unknown key{nearest(str(name), CONDITIONS)}"
        for name in (conditions if isinstance(conditions, dict) else ())
        if name not in CONDITIONS
    ]
    return problems


def impossible(
    row: Slo, loads: Mapping[str, Load], metrics: Mapping[str, Metric], target: Target | None
) -> list[str]:
    """Return the reasons why a row could never be decided; `target` is None if it could not be read."""
    where = f"{row.origin}: slo '{row.id}'"
    problems = []
    if row.bound < 0 and row.metric not in _SIGNED and not probe_of(row.metric):
        problems.append(f"{where}.bound: {row.bound:g} {row.unit} cannot be negative")
    if row.metric in metrics:
        problems += _never_computed(row, metrics[row.metric], where)
    only = _ONLY_LOAD.get(row.stage)
    if only is not None and row.load not in (None, only):
        problems.append(f"{where}.load: '{row.load}', but stage {row.stage} offers '{only}' alone")
    if row.load is not None and row.load in loads:
        problems += _undecidable(row, loads[row.load], where, target)
    return problems


def _never_computed(row: Slo, metric: Metric, where: str) -> list[str]:
    """Return the statistic, window or load of a row that its metric does not support."""
    problems = []
    if not _among(row.statistic, metric.statistics):
        valid = " or ".join(metric.statistics)
        problems.append(f"{where}.statistic: '{row.statistic}', but {row.metric} is judged by {valid}")
    elif row.statistic == "mean" and metric.statistics and row.severity is not Severity.WARN:
        text = 'an average alone never decides: ask a percentile, or set severity = "warn"'
        problems.append(f"{where}.statistic: 'mean': {text}")
    if not _among(row.window, metric.windows):
        valid = " or ".join(f"'{window}'" for window in metric.windows)
        problems.append(f"{where}.window: '{row.window}', but {row.metric} is measured over {valid}")
    if metric.needs_load and row.load is None:
        problems.append(f"{where}.load: missing: {row.metric} is computed from the requests of a load")
    return problems


def _among(name: str, names: Container[str]) -> bool:
    return not names or name in names


def samples_available(row: Slo, load: Load, target: Target | None) -> int | None:
    """Return the requests of the load at the entity of the row that gets fewest; None without a target.

    A load on each engine gives an entity the requests of all its engines. A load through a gateway is one
    stream: an entity gets about its engines' share of it.
    """
    planned = load.planned_requests
    if row.stage == "selfcheck":
        return planned
    if target is None:
        alone = row.scope in (Scope.CARD, Scope.ENGINE) and row.stage not in _ONE_STREAM
        return planned if alone else None
    engines = [len(members_of(entity, target)) for entity in entities_of(row.scope, target)]
    least = min((count for count in engines if count), default=1)
    if row.stage in _ONE_STREAM and target.gateway is not None:
        return planned * least // max(1, len(target.engines))
    return planned * least


def _undecidable(row: Slo, load: Load, where: str, target: Target | None) -> list[str]:
    if load.open and not load.planned_requests:
        return [f"{where}.load: open load '{load.name}' needs rate_per_s and duration_s"]
    if not load.open and (not load.looks or list(load.looks) != sorted(set(load.looks))):
        return [f"{where}.load: closed load '{load.name}' needs looks that grow, such as [105, 210, 420]"]
    available = samples_available(row, load, target)
    if available is None or (target is not None and not_asked(row, target)):
        return []
    needed, what = max(row.min_count, _samples_needed(row, load)), "min_count"
    if needed > row.min_count:
        what = f"statistic: {row.statistic}"
    if available >= needed:
        return []
    plans = f"plans {available}"
    if available != load.planned_requests:
        plans = f"gives each {row.scope} about {available} of them"
    return [f"{where}.{what} needs {needed} requests to be decided, load '{load.name}' {plans}"]


def _samples_needed(row: Slo, load: Load) -> int:
    """Return the samples that the row's percentile needs at the confidence of each look."""
    from rackgate.statistics.looks import look_confidence
    from rackgate.statistics.percentiles import samples_needed

    quantile = row.quantile
    if quantile is None:
        return 0
    share = 1 - quantile if row.op is Op.AT_LEAST else quantile
    return samples_needed(share, look_confidence(max(1, len(load.looks))))


def contradicting(slos: Sequence[Slo]) -> list[str]:
    """Return the pairs of rows that no value can meet together, such as a minimum above a maximum."""
    groups: dict[tuple[object, ...], list[Slo]] = defaultdict(list)
    for row in slos:
        if not row.applies_to:
            groups[(row.stage, row.metric, row.statistic, row.load, row.scope, row.window)].append(row)
    return [
        f"{low.origin}: slo '{low.id}' asks {low.limit}, but '{high.id}' asks {high.limit}"
        for rows in groups.values()
        for low in rows
        for high in rows
        if low is not high
        and low.op is not Op.AT_MOST
        and high.op is not Op.AT_LEAST
        and low.bound > high.bound
    ]
