"""Which cards share one NVLink domain: the pair of cluster UUID and clique, over node or rack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricCard:
    """One card's answer. `state` is "completed", "in_progress", "not_started", "not_supported" or ""."""

    card: str
    state: str
    cluster_uuid: str | None = None
    clique: int | None = None

    @property
    def domain(self) -> str | None:
        """Cluster UUID and clique, None if the card belongs to none."""
        if self.state != "completed" or not self.cluster_uuid or not self.cluster_uuid.strip("0-"):
            return None
        return f"{self.cluster_uuid}/{self.clique}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricFinding:
    """How many cards each domain has, the largest first, and the cards that answer and are not in that."""

    domains: dict[str, int]
    outside: tuple[str, ...]


def judge_fabric(cards: Sequence[FabricCard]) -> FabricFinding:
    """Return who is outside the domain of most; a single card that supports none is not outside of it."""
    domains = dict(Counter(card.domain for card in cards if card.domain).most_common())
    if len(cards) == 1 and cards[0].state == "not_supported":
        return FabricFinding(domains={}, outside=())
    main = next(iter(domains), None)
    outside = tuple(card.card for card in cards if card.state and card.domain != main)
    if main is None:  # no card is in any
        outside = tuple(card.card for card in cards if card.state)
    return FabricFinding(domains=domains, outside=outside)
