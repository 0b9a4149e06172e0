"""What a target asks of a node's host: it decides which facts must be there."""

from __future__ import annotations

from dataclasses import dataclass

from rackgate.nouns.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDemands:
    """`cards` is how many the node should have, `links` that NVLinks or a domain of them are declared.

    `fabric_manager` says that one is pinned, `containers` that cards are used in containers of a daemon.
    """

    cards: int = 0
    links: bool = False
    fabric_manager: bool = False
    containers: bool = False


def demands_of(target: Target) -> dict[str, HostDemands]:
    """Return what is asked of each node; one card at least where they were looked for in vain."""
    least = int(target.no_cards is not None and target.no_cards.on_bus)
    on_containers = {node for one in target.engines if one.launcher == "container" for node in one.nodes}
    return {
        node.name: HostDemands(
            cards=len(node.cards) or least,
            links=bool(node.expect.nvlinks) or node.expect.fabric,
            fabric_manager="fabric_manager" in node.expect.pins,
            containers=node.name in on_containers
            or node.expect.container_image is not None
            or "container_toolkit" in node.expect.pins,
        )
        for node in target.nodes
    }
