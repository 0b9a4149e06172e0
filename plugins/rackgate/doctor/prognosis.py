"""Checks and what was examined in, what will become of each check out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rackgate.doctor.examination import Examination
from rackgate.doctor.inputs import Tried, try_input
from rackgate.doctor.preflight_preview import measured_now
from rackgate.judging.judge import judge
from rackgate.metrics.inputs import Input, alternatives
from rackgate.metrics.metric import Metric
from rackgate.nouns.entities import members_of
from rackgate.nouns.measurement import Measurement
from rackgate.nouns.slo import THROUGH_GATEWAY, Check, Scope
from rackgate.nouns.target import Target
from rackgate.nouns.verdict import Verdict

_ON_ENGINES = ("samples", "engine")
_ON_NODES = ("host", "kernel_log", "redfish", "tool", "docker")
_ANY_IS_ENOUGH = (Scope.RACK, Scope.POOL, Scope.NODE)


class Outlook(StrEnum):
    """What will become of a check; `FAIL`, `WARN` and `UNKNOWN` as things stand now."""

    RUN = "run"
    WARN = "WARN"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"
    ABSENT = "absent"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prognosis:
    """One check's outlook, because of what, and the smallest thing that would cure it.

    `needed` is the input that is not there, in the words of the metric.
    """

    check: Check
    outlook: Outlook
    because: str = ""
    cure: str = ""
    needed: str = ""


def tools_of(checks: Iterable[Check], metrics: Mapping[str, Metric]) -> tuple[str, ...]:
    """Return the programs that checks need."""
    needed = [written for check in checks for written in metrics[check.slo.metric].needs]
    found = [one.name for written in needed for one in alternatives(written) if one.kind == "tool"]
    return tuple(dict.fromkeys(found))


def prognoses(
    checks: Iterable[Check], metrics: Mapping[str, Metric], seen: Examination, profile: str = "smoke"
) -> tuple[Prognosis, ...]:
    """Return what will become of each check in a run of the profile, in their order."""
    now, rack = measured_now(seen, profile), _Rack(seen)
    return tuple(_prognosis(check, metrics[check.slo.metric], now, rack) for check in checks)


class _Rack:
    """What was examined, where each input is looked for and what came of it: each is found out once."""

    def __init__(self, seen: Examination) -> None:
        self.target = seen.target
        self._seen = seen
        self._places: dict[tuple[str, str], tuple[str, ...]] = {}
        self._tried: dict[tuple[Input, str], Tried] = {}

    def tried(self, one: Input, entity: str) -> list[Tried]:
        """Return what came of an input at each place that matters to an entity."""
        key = (one.kind, entity)
        if key not in self._places:
            self._places[key] = _places(*key, self.target)
        return [self._at(one, place) for place in self._places[key]]

    def _at(self, one: Input, place: str) -> Tried:
        if (one, place) not in self._tried:
            self._tried[one, place] = try_input(one, place, self._seen)
        return self._tried[one, place]


def _prognosis(
    check: Check, metric: Metric, now: Mapping[tuple[str, str], Measurement], rack: _Rack
) -> Prognosis:
    planned = _as_planned(check, rack.target)
    if planned is not None:
        return planned
    measured = now.get((check.slo.metric, check.entity)) if check.slo.stage == "preflight" else None
    if measured is not None and measured.value is not None:
        return _as_it_stands(check, measured)
    for written in (*metric.needs, *_of_stage(check, metric, rack.target)):
        tried = _tried(written, check, rack)
        if not tried.ok:
            return _unknown(check, tried.text, tried.cure, written)
    if measured is not None:  # each input is there, and together they leave it open
        return _unknown(check, measured.detail, measured.hint or check.slo.hint)
    return Prognosis(check=check, outlook=Outlook.RUN)


def _as_planned(check: Check, target: Target) -> Prognosis | None:
    """Return what is known of a check before anything is asked; None if it is to be asked."""
    if check.declared_absent:
        return Prognosis(check=check, outlook=Outlook.ABSENT, because=check.declared_absent)
    if check.not_assessed:
        return Prognosis(check=check, outlook=Outlook.UNSEEN, because=check.not_assessed)
    if check.undecidable:
        cure = "give a row whose applies_to fits, or take this one out with a reason"
        return _unknown(check, check.undecidable, cure)
    no_cards = target.no_cards
    if no_cards is not None and check.slo.scope is Scope.CARD and target.node_of(check.entity):
        cure = next(iter(no_cards.next_steps), "")
        return _unknown(check, f"no accelerator was found on this machine: {no_cards.why}", cure, "card")
    return None


def _unknown(check: Check, because: str, cure: str, needed: str = "") -> Prognosis:
    return Prognosis(check=check, outlook=Outlook.UNKNOWN, because=because, cure=cure, needed=needed)


def _as_it_stands(check: Check, measured: Measurement) -> Prognosis:
    verdict = judge(check, measured).verdict
    outlook = {Verdict.FAIL: Outlook.FAIL, Verdict.WARN: Outlook.WARN}.get(verdict, Outlook.RUN)
    if outlook is Outlook.RUN:
        return Prognosis(check=check, outlook=outlook)
    value = f"{measured.value:g} {measured.unit}".strip()
    because = measured.detail or f"it is {value}, agreed {check.slo.limit}"
    return Prognosis(check=check, outlook=outlook, because=because, cure=measured.hint or check.slo.hint)


def _of_stage(check: Check, metric: Metric, target: Target) -> tuple[str, ...]:
    """Return what a stage needs whatever the metric: loads and batches come in where users do."""
    offered = "samples" in metric.needs and check.slo.stage in THROUGH_GATEWAY
    if not offered and check.slo.stage != "batch_retry":
        return ()
    return ("gateway",) if target.gateway is not None else ("engine",)


def _tried(written: str, check: Check, rack: _Rack) -> Tried:
    """Return whether any of the inputs that are each enough is there at all places that matter."""
    found = [_everywhere(one, check, rack) for one in alternatives(written)]
    return next((one for one in found if one.ok), found[0])


def _everywhere(one: Input, check: Check, rack: _Rack) -> Tried:
    if one.kind == "samples" and check.slo.stage == "selfcheck":
        return Tried(ok=True)  # the load goes to the instrument's own reference server
    tried = rack.tried(one, check.entity)
    if not tried:
        return _nowhere(one, check)
    enough = one.kind in _ON_ENGINES and check.slo.scope in _ANY_IS_ENOUGH
    broken = next((answer for answer in tried if not answer.ok), None)
    if broken is None or (enough and any(answer.ok for answer in tried)):
        return Tried(ok=True)
    return broken


def _nowhere(one: Input, check: Check) -> Tried:
    if one.kind in _ON_ENGINES:
        text = f"no engine of the target says that it is on {check.entity}: no load is known to reach it"
        return Tried(ok=False, text=text, cure="name each engine's cards in the target: cards = [...]")
    return Tried(
        ok=False, text=f"{check.entity} declares no source of {one}", cure="declare it in the target"
    )


def _places(kind: str, entity: str, target: Target) -> tuple[str, ...]:
    """Return where an input of a check's entity is looked for."""
    members = members_of(entity, target)
    if kind in _ON_ENGINES:
        return tuple(sorted(members))
    engines = [spec for spec in target.engines if spec.entity in members]
    if kind == "card":
        own = [card.name for card in target.cards if entity in (card.name, card.node)]
        return tuple(dict.fromkeys(own or [card for spec in engines for card in spec.cards]))
    if kind in _ON_NODES:
        node = target.node_of(entity)
        behind = [name for spec in engines for name in spec.nodes]
        every = [one.name for one in target.nodes]
        return (node,) if node else tuple(dict.fromkeys(behind or every))
    return ("gateway",) if kind == "gateway" else ("rack",)
