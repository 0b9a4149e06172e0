"""Acceptance rows x the target's entities -> checks: what this run will be asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rackgate.checks.applicability import (
    asks_the_host,
    nothing_declared,
    of_another_kind,
    why_not_asked,
    without_gauge,
)
from rackgate.engines.api_smoke import OFFERED, SMOKE
from rackgate.engines.catalogue import catalogue, kind_of
from rackgate.metrics.metric import Metric
from rackgate.nouns.entities import entities_of, pairs_of
from rackgate.nouns.peers import LEAST_PEERS, PEER_METRICS, too_few_peers
from rackgate.nouns.slo import STAGES, VANTAGES, Check, Scope, Slo
from rackgate.nouns.target import EngineSpec, Target
from rackgate.probes.applicability import why_not_applicable
from rackgate.probes.probe import Probe, probe_of

CONDITIONS = ("engine", "grade", "model", "pool", "sku", "tensor_parallel", "vendor")
"""The conditions that a row's `applies_to` may have."""

_ITS_OWN_TIMES = "server_ttft_difference_ms"


def plan_checks(
    target: Target,
    slos: Iterable[Slo],
    stages: Sequence[str] = STAGES,
    *,
    metrics: Mapping[str, Metric],
    probes: Mapping[str, Probe],
) -> tuple[Check, ...]:
    """Return every check of the run, in the order of stages and rows; nothing asked is left out.

    The inputs of `metrics` and `probes` decide what a node must give for a row to be asked.
    """
    rows = [row for row in slos if row.stage in stages]
    checks: list[Check] = []
    for row in sorted(rows, key=lambda row: STAGES.index(row.stage)):
        absent, unseen = _absent(row, target), _unseen(row, target)
        if absent:
            # A thing that the vantage cannot see may exist: the row is not assessed, not absent.
            absent = "" if unseen else absent
            checks.append(Check(slo=row, entity="rack", declared_absent=absent, not_assessed=unseen))
            continue
        for entity in entities_of(row.scope, target) or _looked_for_on(row, target):
            unused = (
                ""
                if unseen
                else _unused(row, metrics.get(row.metric), entity, target)
                or why_not_applicable(row, entity, target, probes)
            )
            if _applies(row, entity, target):
                checks.append(Check(slo=row, entity=entity, not_assessed=unseen, declared_absent=unused))
            elif not _answered(row, entity, rows, target):
                why = _no_row(row, entity, target)
                checks.append(
                    Check(
                        slo=row, entity=entity, not_assessed=unseen, declared_absent=unused, undecidable=why
                    )
                )
    return tuple(checks)


def not_asked(row: Slo, target: Target) -> str:
    """Return why nothing of the target is judged by this row: not seen from here, or declared absent."""
    return _unseen(row, target) or _absent(row, target)


def _absent(row: Slo, target: Target) -> str:
    return _stage_absent(row.stage, target) or _row_absent(row, target)


def _unused(row: Slo, metric: Metric | None, entity: str, target: Target) -> str:
    """Return why this row is not asked of this entity of this target; empty if it can be asked.

    The target does not declare what the row is about, gives no way to ask it, or has engines of which none
    uses the card.
    """
    other = of_another_kind(row, metric, entity, target) or without_gauge(row, entity, target)
    other = other or nothing_declared(row, entity, target) or too_few_peers(row, entity, target)
    if other:
        return other
    if asks_the_host(metric) and row.scope in (Scope.NODE, Scope.CARD):
        why = why_not_asked(row, metric, entity, target)
        if why or row.scope is Scope.NODE:
            return why
    if row.metric == "undeclared_cards" and _has_no_card_source(entity, target):
        return f"target {target.name} declares no cards of {entity}, and nothing that would list any"
    if row.metric in SMOKE or row.metric == _ITS_OWN_TIMES:
        return _not_offered(row.metric, entity, target)
    used = {card for engine in target.engines for card in engine.cards}
    if row.load is None or row.scope is not Scope.CARD or not used or entity in used:
        return ""
    return "declared: no engine of the target uses this card"


def _has_no_card_source(entity: str, target: Target) -> bool:
    node = next((one for one in target.nodes if one.name == entity), None)
    if node is None or node.cards or target.no_cards is not None:
        return False
    return node.exporter_url is None and node.access.cards is None


def _not_offered(metric: str, entity: str, target: Target) -> str:
    """Return that an engine speaks another API, or is not declared to offer or to report what is asked."""
    from rackgate.engines.protocols.protocol import protocol_named

    engine = next((one for one in target.engines if one.entity == entity), None)
    if engine is None:
        return ""
    if metric == _ITS_OWN_TIMES:
        return _not_told(engine, target)
    if not protocol_named(engine.protocol).dialect.chats:
        return f"declared: engine {engine.name} speaks {engine.protocol}"
    capability = OFFERED.get(metric)
    if capability is None or capability in engine.offers:
        return ""
    return f"target {target.name} does not say that engine {engine.name} offers {capability} (offers)"


def _not_told(engine: EngineSpec, target: Target) -> str:
    """Return that an engine is of no declared kind that reports its own times to first token."""
    kind = kind_of(engine.settings)
    if engine.launcher == "simulated" or (kind is not None and kind.tells_first_tokens):
        return ""
    known = [entry.name for entry in catalogue().values() if entry.tells_first_tokens]
    return (
        f"target {target.name} does not say that engine {engine.name} is one of {', '.join(known)} (engine)"
    )


def _looked_for_on(row: Slo, target: Target) -> tuple[str, ...]:
    """Return the nodes on which no card was found although none was declared absent."""
    if row.stage != "preflight" or row.scope is not Scope.CARD or target.no_cards is None:
        return ()
    return tuple(node.name for node in target.nodes)


def _stage_absent(stage: str, target: Target) -> str:
    if not target.engines and stage not in ("selfcheck", "preflight"):
        return f"target {target.name} declares no engine"
    nodes = {node for engine in target.engines for node in engine.nodes}
    if stage == "two_card" and not pairs_of(target):
        return f"target {target.name} declares no node with two single-card engines"
    if stage == "cross_node" and (target.gateway is None or len(nodes) < 2):
        return f"target {target.name} declares no gateway over two nodes"
    if stage == "fault_injection":
        if "engine" not in target.may_break:
            return f"target {target.name} does not allow engines to be broken (may_break)"
        if target.gateway is None or len(target.engines) < 2:
            return f"target {target.name} declares no gateway over two engines"
    return ""


def _row_absent(row: Slo, target: Target) -> str:
    if row.metric.startswith("gateway_") and target.gateway is None:
        return f"target {target.name} declares no gateway"
    if row.metric in PEER_METRICS and len(entities_of(row.scope, target)) <= LEAST_PEERS:
        return f"target {target.name} declares too few {row.scope}s: one is compared with at least two others"
    if (
        row.metric in ("host_outliers", "facts_split")
        and sum(node.access.reaches_host for node in target.nodes) < 2
    ):
        return f"target {target.name} declares no way into two hosts: nothing to compare"
    if not entities_of(row.scope, target) and not _looked_for_on(row, target):
        return f"target {target.name} declares no {row.scope}s"
    return ""


def _unseen(row: Slo, target: Target) -> str:
    if VANTAGES.index(target.vantage) >= VANTAGES.index(row.vantage):
        return ""
    return (
        f"not assessed from here: needs vantage {row.vantage}, target {target.name} declares {target.vantage}"
    )


def _no_row(row: Slo, entity: str, target: Target) -> str:
    if probe_of(row.metric):
        facts = _facts(entity, target)
        here = ", ".join(f"{name} {facts.get(name, 'not declared')}" for name in row.applies_to)
        return f"no floor known for {here}: no row for {row.metric} names it"
    return f"no row for {row.metric} {row.statistic} applies here: {_conditions(row)}"


def _facts(entity: str, target: Target) -> dict[str, str]:
    facts = {"grade": target.grade, "model": target.model}
    engine = next((one for one in target.engines if entity in (one.entity, *one.cards)), None)
    if engine is not None:
        facts.update(
            model=engine.model,
            pool=engine.pool,
            engine=str(engine.settings.get("engine", engine.launcher)),
            tensor_parallel=str(max(1, len(engine.cards))),
        )
    card = next((one for one in target.cards if one.name == entity), None)
    node = next((one for one in target.nodes if one.name == target.node_of(entity)), None)
    if node is not None and node.cards:
        mine = (card,) if card is not None else node.cards
        for name, told in (("sku", {one.sku for one in mine}), ("vendor", {one.vendor for one in mine})):
            same = told.pop() if len(told) == 1 else None
            facts |= {name: same} if same else {}
    return facts


def _applies(row: Slo, entity: str, target: Target) -> bool:
    facts = _facts(entity, target) if row.applies_to else {}
    return all(facts.get(name) in values for name, values in row.applies_to.items())


def _answered(row: Slo, entity: str, rows: Iterable[Slo], target: Target) -> bool:
    key = (row.stage, row.metric, row.statistic, row.scope, row.load, row.window)
    return any(
        (other.stage, other.metric, other.statistic, other.scope, other.load, other.window) == key
        and (_applies(other, entity, target) or other.id < row.id)
        for other in rows
        if other is not row
    )


def _conditions(row: Slo) -> str:
    return "; ".join(f"{name} in {', '.join(values)}" for name, values in row.applies_to.items())
