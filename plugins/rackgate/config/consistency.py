"""What no acceptance could ever answer: impossible bounds, units, loads too short for their percentile."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rackgate.config.problems import nearest
from rackgate.planning import CONDITIONS
from rackgate.slo import STAGES, Op, Scope, Slo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rackgate.load import Load

__all__ = ["contradicting", "impossible"]

_SIGNED = ("temperature_c",)


def impossible(
    row: Slo, loads: Mapping[str, Load], units: Mapping[str, str], engines: int | None
) -> list[str]:
    """Return what is wrong with one row; `engines` is None where the target could not be read."""
    where = f"{row.origin}: slo '{row.id}'"
    problems = []
    if row.stage not in STAGES:
        problems.append(f"{where}: no stage '{row.stage}'{nearest(row.stage, STAGES)}")
    if row.metric not in units:
        problems.append(f"{where}.metric: no metric '{row.metric}'{nearest(row.metric, units)}")
    elif units[row.metric] != row.unit:
        problems.append(f"{where}.unit: '{row.unit}', but {row.metric} is measured in '{units[row.metric]}'")
    if row.bound < 0 and row.metric not in _SIGNED:
        problems.append(f"{where}.bound: {row.bound:g} {row.unit} cannot be negative")
    problems += [
        f"{where}.applies_to.{name}: unknown key{nearest(name, CONDITIONS)}"
        for name in row.applies_to
        if name not in CONDITIONS
    ]
    if row.load is not None and row.load not in loads:
        problems.append(f"{where}.load: no load '{row.load}'{nearest(row.load, loads)}")
    elif row.load is not None:
        problems += _undecidable(row, loads[row.load], where, engines)
    return problems


def _undecidable(row: Slo, load: Load, where: str, engines: int | None) -> list[str]:
    from rackgate.statistics.percentiles import samples_needed

    if load.open and not load.planned_requests:
        return [f"{where}.load: open load '{load.name}' needs rate_per_s and duration_s"]
    if not load.open and (not load.looks or list(load.looks) != sorted(set(load.looks))):
        return [f"{where}.load: closed load '{load.name}' needs looks that grow, such as [105, 210, 420]"]
    pooled = row.scope in (Scope.POOL, Scope.RACK, Scope.NODE)
    if pooled and engines is None:
        return []
    planned = load.planned_requests * ((engines or 1) if pooled else 1)
    needed, what = row.min_count, "min_count"
    if row.statistic.startswith("p"):
        looks = max(1, len(load.looks))
        needed = max(needed, samples_needed(float(f"0.{row.statistic[1:]}"), 1 - 0.05 / looks))
        what = f"statistic: {row.statistic}"
    if planned >= needed:
        return []
    return [f"{where}.{what} needs {needed} requests to be decided, load '{load.name}' plans {planned}"]


def contradicting(slos: Sequence[Slo]) -> list[str]:
    """Return the pairs of rows that no value can satisfy together, such as a minimum above a maximum."""
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
