"""Forecast of each check of a run, from a snapshot of the rack."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial

from rackgate.doctor.input_checks import InputCheck, check_input
from rackgate.doctor.snapshot import Snapshot
from rackgate.judging.judge import judge
from rackgate.metrics.inputs import Input, alternatives
from rackgate.metrics.metric import Metric
from rackgate.nouns.entities import members_of
from rackgate.nouns.measurement import Measurement, ProbeResults, Reason, missing, truth
from rackgate.nouns.slo import THROUGH_GATEWAY, Check, Scope
from rackgate.nouns.target import Target
from rackgate.nouns.verdict import Verdict
from rackgate.preflight.card_memory import unaccounted_memory
from rackgate.preflight.cards import probe_readings
from rackgate.preflight.kernel_events import probe_events
from rackgate.preflight.nodes import measured_cards, measured_hosts

_ENGINE_KINDS = ("samples", "engine")
_NODE_KINDS = ("host", "kernel_log", "redfish", "tool", "docker")
_ONE_ENGINE_IS_ENOUGH = (Scope.RACK, Scope.POOL, Scope.NODE)


class Outlook(StrEnum):
    """The expected outcome of a check; `FAIL` and `WARN` if the rack stays as it is now."""

    RUN = "run"
    WARN = "WARN"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"
    ABSENT = "absent"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The outlook of one check, its reason and its smallest cure; `needed` is the input that is missing."""

    check: Check
    outlook: Outlook
    because: str = ""
    cure: str = ""
    needed: str = ""


def tools_of(checks: Iterable[Check], metrics: Mapping[str, Metric]) -> tuple[str, ...]:
    """Return the programs that checks need."""
    needs = [need for check in checks for need in metrics[check.slo.metric].needs]
    found = [one.name for need in needs for one in alternatives(need) if one.kind == "tool"]
    return tuple(dict.fromkeys(found))


def forecast(
    checks: Iterable[Check], metrics: Mapping[str, Metric], snapshot: Snapshot, profile: str = "smoke"
) -> tuple[Forecast, ...]:
    """Return the forecast of each check in a run of the profile, in their order."""
    measured, rack = _preflight_now(snapshot, profile), _Rack(snapshot)
    return tuple(_forecast(check, metrics[check.slo.metric], measured, rack) for check in checks)


def _preflight_now(snapshot: Snapshot, profile: str) -> ProbeResults:
    """Return what preflight would measure now, as far as a snapshot tells."""
    found: ProbeResults = {}
    for node in snapshot.target.nodes:
        if node.name in snapshot.readings:
            readings, listed = snapshot.readings[node.name]
            found |= measured_cards(node, readings, listed)
    found |= measured_hosts(snapshot.target, snapshot.facts, firmware=snapshot.firmware)
    books = {name: book for name, (book, _) in snapshot.logs.items()}
    problems = {name: problem for name, (_, problem) in snapshot.logs.items()}
    found |= probe_events(books, problems, time.perf_counter_ns(), profile)
    for name, readings in snapshot.chassis.items():
        found |= probe_readings(readings, [name])
    for entity, engine in snapshot.engines.items():
        if engine.refused or engine.answered:
            found["engine_reachable", entity] = truth(
                "engine_reachable", entity, engine.answered, engine.text, engine.cure
            )
        if engine.served is not None:
            found["model_served", entity] = truth("model_served", entity, engine.ok, engine.text, engine.cure)
        elif engine.unlisted:
            nothing = missing("model_served", entity, "bool", Reason.UNSUPPORTED, engine.text)
            found["model_served", entity] = nothing
    return found | unaccounted_memory(snapshot.target, found)


class _Rack:
    """Input checks of one snapshot; each input is checked once at each place."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.target = snapshot.target
        self._places = cache(partial(_places, target=snapshot.target))
        self._check = cache(partial(check_input, snapshot=snapshot))

    def check(self, needed: Input, entity: str) -> list[InputCheck]:
        """Return the check of an input at each place that matters to an entity."""
        return [self._check(needed, place) for place in self._places(needed.kind, entity)]


def _forecast(
    check: Check, metric: Metric, preflight: Mapping[tuple[str, str], Measurement], rack: _Rack
) -> Forecast:
    planned = _from_plan(check, rack.target)
    if planned is not None:
        return planned
    measured = preflight.get((check.slo.metric, check.entity)) if check.slo.stage == "preflight" else None
    if measured is not None and measured.value is not None:
        return _from_measurement(check, measured)
    for need in (*metric.needs, *_stage_needs(check, metric, rack.target)):
        available = _any_alternative(need, check, rack)
        if not available.ok:
            return _unknown(check, available.text, available.cure, need)
    if measured is not None:  # all inputs are available, and preflight has no value from them
        return _unknown(check, measured.detail, measured.hint or check.slo.hint)
    return Forecast(check=check, outlook=Outlook.RUN)


def _from_plan(check: Check, target: Target) -> Forecast | None:
    """Return the forecast that the plan and the target decide without an input; None if they do not."""
    if check.declared_absent:
        return Forecast(check=check, outlook=Outlook.ABSENT, because=check.declared_absent)
    if check.not_assessed:
        return Forecast(check=check, outlook=Outlook.UNSEEN, because=check.not_assessed)
    if check.undecidable:
        cure = "give a row whose applies_to fits, or take this one out with a reason"
        return _unknown(check, check.undecidable, cure)
    no_cards = target.no_cards
    if no_cards is not None and check.slo.scope is Scope.CARD and target.node_of(check.entity):
        cure = next(iter(no_cards.next_steps), "")
        return _unknown(check, f"no accelerator was found on this machine: {no_cards.why}", cure, "card")
    return None


def _unknown(check: Check, because: str, cure: str, needed: str = "") -> Forecast:
    return Forecast(check=check, outlook=Outlook.UNKNOWN, because=because, cure=cure, needed=needed)


def _from_measurement(check: Check, measured: Measurement) -> Forecast:
    verdict = judge(check, measured).verdict
    outlook = {Verdict.FAIL: Outlook.FAIL, Verdict.WARN: Outlook.WARN}.get(verdict, Outlook.RUN)
    if outlook is Outlook.RUN:
        return Forecast(check=check, outlook=outlook)
    value = f"{measured.value:g} {measured.unit}".strip()
    because = measured.detail or f"it is {value}, agreed {check.slo.limit}"
    return Forecast(check=check, outlook=outlook, because=because, cure=measured.hint or check.slo.hint)


def _stage_needs(check: Check, metric: Metric, target: Target) -> tuple[str, ...]:
    """Return what a stage needs for any metric: loads and batches go to the address that users call."""
    offers_load = "samples" in metric.needs and check.slo.stage in THROUGH_GATEWAY
    if not offers_load and check.slo.stage != "batch_retry":
        return ()
    return ("gateway",) if target.gateway is not None else ("engine",)


def _any_alternative(need: str, check: Check, rack: _Rack) -> InputCheck:
    """Return the first alternative input that is available at all places, else the check of the first one."""
    found = [_everywhere(needed, check, rack) for needed in alternatives(need)]
    return next((one for one in found if one.ok), found[0])


def _everywhere(needed: Input, check: Check, rack: _Rack) -> InputCheck:
    if needed.kind == "samples" and check.slo.stage == "selfcheck":
        return InputCheck(ok=True)  # the load goes to the instrument's own reference server
    checked = rack.check(needed, check.entity)
    if not checked:
        return _nowhere(needed, check)
    missing_at = next((one for one in checked if not one.ok), None)
    one_is_enough = needed.kind in _ENGINE_KINDS and check.slo.scope in _ONE_ENGINE_IS_ENOUGH
    if missing_at is None or (one_is_enough and any(one.ok for one in checked)):
        return InputCheck(ok=True)
    return missing_at


def _nowhere(needed: Input, check: Check) -> InputCheck:
    if needed.kind in _ENGINE_KINDS:
        text = f"no engine of the target says that it is on {check.entity}: no load is known to reach it"
        return InputCheck(ok=False, text=text, cure="name each engine's cards in the target: cards = [...]")
    text = f"{check.entity} declares no source of {needed}"
    return InputCheck(ok=False, text=text, cure="declare it in the target")


def _places(kind: str, entity: str, target: Target) -> tuple[str, ...]:
    """Return the cards, nodes or engines at which an input of an entity is checked."""
    members = members_of(entity, target)
    if kind in _ENGINE_KINDS:
        return tuple(sorted(members))
    engines = [spec for spec in target.engines if spec.entity in members]
    if kind == "card":
        own = [card.name for card in target.cards if entity in (card.name, card.node)]
        return tuple(dict.fromkeys(own or [card for spec in engines for card in spec.cards]))
    if kind in _NODE_KINDS:
        node = target.node_of(entity)
        behind = [name for spec in engines for name in spec.nodes]
        return (node,) if node else tuple(dict.fromkeys(behind or [node.name for node in target.nodes]))
    return ("gateway",) if kind == "gateway" else ("rack",)
