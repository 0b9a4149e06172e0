"""Applicability of a probe to an entity: a way into the host, a fitting card, peers to compare with."""

from __future__ import annotations

from collections.abc import Mapping

from rackgate.nouns.node import Node
from rackgate.nouns.slo import Scope, Slo
from rackgate.nouns.target import Target
from rackgate.probes.probe import Probe, probe_of


def why_not_applicable(row: Slo, entity: str, target: Target, probes: Mapping[str, Probe]) -> str:
    """Return why the row's probe does not apply to an entity; "" if it does, or the row has no probe."""
    probe = probes.get(probe_of(row.metric))
    node = next((one for one in target.nodes if one.name == target.node_of(entity)), None)
    if probe is None or node is None or (target.no_cards is not None and row.scope is Scope.CARD):
        return ""
    if probe.needs_host and not node.access.reaches_host:
        text = f"no way into the host of {node.name} ([node.telemetry] local, ssh or docker)"
        return f"target {target.name} declares {text}"
    return _no_such_card(probe, entity, node) or _too_few(probe, row, node, target)


def _no_such_card(probe: Probe, entity: str, node: Node) -> str:
    cards = [card for card in node.cards if entity in (node.name, card.name)]
    if probe.vendor and probe.vendor not in {card.vendor for card in cards}:
        return f"declared: {entity} has no card of {probe.vendor}'s"
    if probe.skus and not {card.sku for card in cards} & set(probe.skus):
        return f"declared: {entity} has no card of {', '.join(probe.skus)}"
    return ""


def _too_few(probe: Probe, row: Slo, node: Node, target: Target) -> str:
    value = row.metric.split(".")[-1]
    least = probe.least_cards.get(value, 0)
    if len(node.cards) < least:
        return f"declared: {node.name} has fewer than {least} cards"
    if len(target.nodes) < probe.nodes:
        return f"target {target.name} declares fewer than {probe.nodes} nodes"
    peers = len(target.cards) if row.scope is Scope.CARD else len(target.nodes)
    if (value in probe.shares or probe.peer_command) and peers < 2:
        return f"target {target.name} declares one {row.scope}: there is no other one"
    return ""
