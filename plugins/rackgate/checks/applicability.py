"""Applicability of rows about hosts and cards: a way into the host, and the facts they compare with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rackgate.metrics.inputs import alternatives
from rackgate.metrics.metric import Metric
from rackgate.nouns.node import Card, Node
from rackgate.nouns.slo import Slo
from rackgate.nouns.target import Target

_WAYS_IN = frozenset({"host", "kernel_log", "redfish", "docker"})
"""The kinds of inputs that a node gives only where the target says how it is asked."""

_TRIAGE = ("host_module", "host_driver", "host_cuda", "host_runtime", "host_network", "host_warnings")
_XIDS_OF_CARDS = ("xids_failed", "xids_warned", "xids_since_boot", "xids_warned_since_boot")


def asks_the_host(metric: Metric | None) -> bool:
    """Return whether a metric can be had only of a node that the target opens."""
    return bool(_ways_in(metric))


def _ways_in(metric: Metric | None) -> frozenset[str]:
    """Return the ways into a host that a metric cannot do without: no other kind of input is enough."""
    found: set[str] = set()
    for written in metric.inputs if metric else ():
        kinds = {one.kind for one in alternatives(written)}
        found |= kinds if kinds <= _WAYS_IN else set()
    return frozenset(found)


def why_not_asked(row: Slo, metric: Metric | None, entity: str, target: Target) -> str:
    """Return why this row is not asked of a node or card here; empty if it can be asked.

    The target gives no way into the node, or does not declare what the row compares with.
    """
    ways = _ways_in(metric)
    node = next((one for one in target.nodes if one.name == target.node_of(entity)), None)
    if node is None:
        return ""
    if "redfish" in ways:
        text = f"target {target.name} declares no management controller of {node.name} ([node.redfish])"
        return text if node.access.redfish is None else ""
    log = ways == {"kernel_log"} and node.access.kernel_log
    if not node.access.reaches_host and not log:
        text = f"no way into the host of {node.name} ([node.telemetry] local, ssh or docker)"
        return f"target {target.name} declares {text}"
    card = next((one for one in node.cards if one.name == entity), None)
    lacks, what = _DECLARATIONS.get(row.metric, (_never, ""))
    return f"target {target.name} {what.format(entity=entity)}" if lacks(node, card, target) else ""


_WITHOUT_MARGIN = frozenset({"P100", "V100", "T4", "A2", "A10", "A16", "A30", "A40", "A100", "A800"})
"""Cards before Ada and Hopper, whose driver tells no distance to the slowdown temperature."""


def of_another_kind(row: Slo, metric: Metric | None, entity: str, target: Target) -> str:
    """Return why this row is not asked of cards of this vendor or age; empty if it can be asked."""
    cards = [card for card in target.cards if entity in (card.name, card.node)]
    kinds = {re.split(r"[^A-Z0-9]", card.sku.upper())[0] for card in cards if card.sku}
    if row.metric == "temperature_margin_c" and kinds and kinds <= _WITHOUT_MARGIN:
        text = f"{entity} is of kind {', '.join(sorted(kinds))}, which tells no margin"
        return f"declared: {text}; its absolute temperature is judged"
    vendors = {card.vendor for card in cards}
    if metric is None or not metric.vendor or not vendors or metric.vendor in vendors:
        return ""
    return (
        f"declared: the cards of {entity} are {', '.join(sorted(vendors))}'s, and the row is about NVIDIA's"
    )


def without_gauge(row: Slo, entity: str, target: Target) -> str:
    """Return that the card's source has no gauge of the last XID; empty if it has, or for another row."""
    node = next((one for one in target.nodes if one.name == target.node_of(entity)), None)
    if row.metric != "last_xid_changes" or node is None or node.access.cards not in _WITHOUT_GAUGE:
        return ""
    return f"declared: {node.access.cards} has no gauge of the last XID of {entity}"


_WITHOUT_GAUGE = ("nvml", "nvidia-smi")


def nothing_declared(row: Slo, entity: str, target: Target) -> str:
    """Return that the target declares no identity of the card; empty if it does, or for another row."""
    card = next((one for one in target.cards if one.name == entity), None)
    if row.metric != "identity_differences" or card is None:
        return ""
    if card.serial or card.pci or card.uuid or card.sku:
        return ""
    return f"target {target.name} gives neither serial, PCI address, UUID nor SKU of {entity} ([[node.card]])"


def _never(_node: Node, _card: Card | None, _target: Target) -> bool:
    return False


def _no_cards(node: Node, _card: Card | None, target: Target) -> bool:
    return not node.cards and not (target.no_cards and target.no_cards.on_bus)


def _no_address(_node: Node, card: Card | None, _target: Target) -> bool:
    return card is not None and card.pci is None


def _no_programs(node: Node, card: Card | None, target: Target) -> bool:
    """Return whether an engine's own processes could not be told from those of others."""
    launchers = {one.launcher for one in target.engines if card and card.name in one.cards}
    return bool(launchers - {"process"}) and not node.expect.processes


_DECLARATIONS: Mapping[str, tuple[Callable[[Node, Card | None, Target], bool], str]] = {
    **dict.fromkeys(_TRIAGE, (_no_cards, "declares no cards of {entity}")),
    **dict.fromkeys(
        _XIDS_OF_CARDS,
        (_no_address, "gives no PCI address of {entity} ([[node.card]] pci)"),
    ),
    "foreign_processes": (_no_programs, "does not name the programs on {entity} ([expect] processes)"),
    "pins_differing": (
        lambda node, _card, _target: not (node.expect.pins or node.expect.firmware or node.expect.images),
        "pins nothing of {entity} ([expect])",
    ),
    "fabric_outside": (
        lambda node, _card, _target: not node.expect.fabric,
        "declares no NVLink domain of {entity} ([expect] fabric)",
    ),
    "nvlinks_lost": (
        lambda node, _card, _target: node.expect.nvlinks is None,
        "declares no NVLinks of {entity} ([expect] nvlinks)",
    ),
    **dict.fromkeys(
        ("storage_read_mib_s", "storage_latency_ms"),
        (
            lambda _node, _card, target: target.storage_path is None,
            "does not say where models are loaded from ([storage] path)",
        ),
    ),
    **dict.fromkeys(
        ("infiniband_ports_lost", "infiniband_error_growth"),
        (
            lambda node, _card, _target: node.expect.infiniband_ports is None,
            "declares no InfiniBand ports of {entity} ([expect] infiniband_ports)",
        ),
    ),
    "partition_ports_outside": (
        lambda node, _card, _target: node.expect.partition is None,
        "declares no InfiniBand partition of {entity} ([expect] partition)",
    ),
    "imex_nodes_lost": (
        lambda node, _card, _target: node.expect.imex_nodes is None,
        "declares no IMEX domain of {entity} ([expect] imex_nodes)",
    ),
    "nvme_drives_lost": (
        lambda node, _card, _target: node.expect.nvme_drives is None,
        "declares no NVMe drives of {entity} ([expect] nvme_drives)",
    ),
    "cards_not_in_container": (
        lambda node, _card, _target: node.expect.container_image is None,
        "names no image to look for the cards of {entity} in ([expect] container_image)",
    ),
    "mig_differences": (
        lambda node, _card, _target: node.expect.mig is None,
        "declares no layout of MIG for {entity} ([expect] mig)",
    ),
}
"""By metric: whether the target lacks what the row compares with, and how to say so."""
