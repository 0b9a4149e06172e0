"""Measurements from the answers of nodes, with a reason for each value that is missing."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rackgate.nouns.measurement import Measurement, ProbeResults, Reason, missing
from rackgate.probes.probe import Answer, Probe, metric_of


def measurements_of(
    probe: Probe, answers: Sequence[Answer], wanted: Iterable[tuple[str, str, str]]
) -> ProbeResults:
    """Return a measurement for each wanted (value name, entity, probed node or `rack`)."""
    by_node = {answer.node: answer for answer in answers}
    found = {}
    for name, entity, node in wanted:
        shared, best = probe.shares.get(name), probe.peer_shares.get(name)
        measured = _measured(probe, shared or best or name, entity, by_node[node])
        if shared or best:
            peers = answers if shared else [by_node[node]]
            share = _share_of(measured, peers, of_best=not shared)
            measured = replace(share, metric=metric_of(probe.name, name), unit=probe.values[name])
        found[metric_of(probe.name, name), entity] = measured
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
    value = next((one for one in answer.values if (one.name, one.entity) == (name, entity)), None)
    if value is None:
        given = ", ".join(dict.fromkeys(f"{one.name} of {one.entity}" for one in answer.values))
        return none(Reason.ABSENT, f"it says nothing of {name} of {entity}, but {given[:200] or 'nothing'}")
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


def _share_of(measured: Measurement, answers: Iterable[Answer], *, of_best: bool) -> Measurement:
    """Return a value as its share of the best value, or of the median, over the answers."""
    base = measured.metric.split(".")[-1]
    every = (value for answer in answers for value in answer.values)
    peers = [value.value for value in every if value.name == base and value.value is not None]
    if measured.value is None:
        return measured
    reference = max(peers) if of_best else statistics.median(peers)
    if len(peers) < 2 or reference <= 0:
        return measured.without_value(Reason.TOO_FEW, f"{len(peers)} value(s) of {base}: nothing to compare")
    name = f"best of {len(peers)} on the node" if of_best else f"median of {len(peers)}"
    compared = f"{measured.value:.4g} {measured.unit}, {name}: {reference:.4g}"
    detail = f"{compared}; {measured.detail}".rstrip("; ")
    return replace(measured, value=measured.value / reference, detail=detail)
