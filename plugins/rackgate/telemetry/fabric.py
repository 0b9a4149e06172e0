"""Which cards share one NVLink domain: the pair of cluster UUID and clique, over node or rack."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rackgate.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FabricCard", "FabricFinding", "judge_fabric"]


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
    """How many cards each domain has, the cards outside the largest, and what that means.

    `verdict` is None where a fabric does not apply: one card that does not support it.
    """

    domains: dict[str, int]
    outside: tuple[str, ...]
    verdict: Verdict | None
    text: str


def judge_fabric(cards: Sequence[FabricCard]) -> FabricFinding:
    """Return whether all cards are in one domain; not supported is no fault on a single card only."""
    domains = dict(Counter(card.domain for card in cards if card.domain).most_common())
    if len(cards) == 1 and cards[0].state == "not_supported":
        return FabricFinding(domains={}, outside=(), verdict=None, text="fabric not applicable (1 card)")
    unread = [card.card for card in cards if not card.state]
    main = next(iter(domains), None)
    outside = tuple(card.card for card in cards if card.state and card.domain != main)
    if outside or (main is None and not unread):
        where = ", ".join(
            f"{card.card}: {card.domain or card.state}" for card in cards if card.card in outside
        )
        text = f"{where}; the others: {main}" if main else f"no card is in a domain ({where})"
        return FabricFinding(domains=domains, outside=outside, verdict=Verdict.FAIL, text=text)
    if unread:
        text = f"not answered by {', '.join(unread)}"
        return FabricFinding(domains=domains, outside=(), verdict=Verdict.UNKNOWN, text=text)
    return FabricFinding(
        domains=domains, outside=(), verdict=Verdict.PASS, text=f"{len(cards)} cards in {main}"
    )
