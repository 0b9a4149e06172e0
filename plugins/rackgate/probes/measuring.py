"""Answers of nodes -> measurements by (metric, entity): of what was not said, why not."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rackgate.nouns.measurement import Measurement, ProbeResults, Reason, missing
from rackgate.probes.probe import Answer, Probe, Value, metric_of


def measurements_of(
    probe: Probe, answers: Sequence[Answer], wanted: Iterable[tuple[str, str, str]]
) -> ProbeResults:
    """Return a measurement for each wanted (value's name, entity, node or `rack` that was asked for it)."""
    by_node = {answer.node: answer for answer in answers}
    found = {}
    for name, entity, node in wanted:
        base, best = probe.shares.get(name), probe.peer_shares.get(name)
        one = _measured(probe, base or best or name, entity, by_node[node])
        if base is not None:
            one = _share(probe, name, one, answers)
        elif best is not None:
            one = _peer_share(probe, name, one, by_node[node])
        found[metric_of(probe.name, name), entity] = one
    return found


def _measured(probe: Probe, name: str, entity: str, answer: Answer) -> Measurement:
    metric, unit = metric_of(probe.name, name), probe.values[name]

    def none(reason: Reason, detail: str) -> Measurement:
        text = f"{answer.node} {'was asked' if answer.asked else 'was not asked'}: {detail}"
        return replace(
            missing(metric, entity, unit, reason, text, hint=answer.hint), source=f"probe {probe.name}"
        )

    if answer.reason is not None:
        return none(answer.reason, answer.detail)
    value = _said(answer.values, name, entity)
    if value is None:
        told = ", ".join(dict.fromkeys(f"{one.name} of {one.entity}" for one in answer.values))
        return none(Reason.ABSENT, f"it says nothing of {name} of {entity}, but {told[:200] or 'nothing'}")
    if value.unit and value.unit != unit:
        return none(Reason.UNSUPPORTED, f"{name} came in '{value.unit}', declared is '{unit}'")
    if value.value is None:
        return none(value.reason or Reason.ABSENT, value.detail)
    return Measurement(
        metric=metric,
        entity=entity,
        value=value.value,
        unit=unit,
        count=value.count,
        detail=value.detail,
        source=f"probe {probe.name}",
    )


def _said(values: Iterable[Value], name: str, entity: str) -> Value | None:
    return next((one for one in values if (one.name, one.entity) == (name, entity)), None)


def _share(probe: Probe, name: str, one: Measurement, answers: Iterable[Answer]) -> Measurement:
    """Return a value as its share of the median over everything that gave one."""
    base = one.metric.split(".")[-1]
    all_of_it = [
        value.value
        for answer in answers
        for value in answer.values
        if value.name == base and value.value is not None
    ]
    share = replace(one, metric=metric_of(probe.name, name), unit=probe.values[name])
    if one.value is None:
        return share
    middle = statistics.median(all_of_it)
    if len(all_of_it) < 2 or middle <= 0:
        return share.without_value(Reason.TOO_FEW, f"{len(all_of_it)} value(s) of {base}: nothing to compare")
    detail = f"{one.value:.4g} {one.unit}, median of {len(all_of_it)}: {middle:.4g}; {one.detail}"
    return replace(share, value=one.value / middle, detail=detail.rstrip("; "))


def _peer_share(probe: Probe, name: str, one: Measurement, answer: Answer) -> Measurement:
    """Return a value as its share of the best one of the same node."""
    base = one.metric.split(".")[-1]
    peers = [value.value for value in answer.values if value.name == base and value.value is not None]
    share = replace(one, metric=metric_of(probe.name, name), unit=probe.values[name])
    if one.value is None:
        return share
    if len(peers) < 2 or max(peers) <= 0:
        return share.without_value(Reason.TOO_FEW, f"{len(peers)} value(s) of {base}: nothing to compare")
    detail = f"{one.value:.4g} {one.unit}, best of {len(peers)} on the node: {max(peers):.4g}; {one.detail}"
    return replace(share, value=one.value / max(peers), detail=detail.rstrip("; "))
