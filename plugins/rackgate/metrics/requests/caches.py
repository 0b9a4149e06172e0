"""Cached answers: how much faster tokens come when a prompt is repeated."""

from __future__ import annotations

from rackgate.loadgen.cache_audit import compare_repeats
from rackgate.metrics.metric import Register
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import chosen_samples
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.slo import ONE_VALUE, Slo


def repeat_speed_up(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Median time per token of prompts sent for the first time / that of the same prompts sent again.

    About 1: a prefix cache shortens the first token only. Well above 1 the answers come from a cache.
    """
    chosen = chosen_samples(observation, slo, entity)
    if chosen.table is None:
        why = chosen.why
        reason, text = (why.reason, why.detail) if why is not None else (None, "no samples")
        return missing(slo.metric, entity, slo.unit, reason or Reason.ABSENT, text)
    load = chosen.looks[-1].load
    if load.repeats < 2:
        text = f"load '{load.name}' repeats no prompt (repeats)"
        return missing(slo.metric, entity, slo.unit, Reason.NOT_CONFIGURED, text)
    found = compare_repeats(chosen.table, repeats=load.repeats)
    if found.speed_up is None:
        return missing(slo.metric, entity, slo.unit, found.reason, found.detail)
    return Measurement(
        metric=slo.metric, entity=entity, value=found.speed_up, unit=slo.unit, count=found.pairs,
        detail=found.detail, source=f"load {slo.load}",
    )  # fmt: skip


def register_metrics(register: Register) -> None:
    """Register the metric of this module."""
    register(
        "repeat_speed_up", "ratio", repeat_speed_up, statistics=ONE_VALUE, windows=("load",), needs_load=True
    )
