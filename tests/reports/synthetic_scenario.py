"""What a synthetic run is like: size, length, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field

START_NS = 5_000_000_000_000


@dataclass
class Scenario:
    """What a synthetic run is like."""

    nodes: int = 2
    cards: int = 2
    grade: str = "simulated"
    slow: str = ""
    interrupted_in: str = ""
    partial: bool = False
    stretch: float = 1.0
    requests: int = 420
    telemetry_hz: float = 1.0
    extra_checks: int = 0
    note: str = ""
    accepted: bool | None = None
    headline: str = ""
    scale_s: dict[str, float] = field(
        default_factory=lambda: {
            "selfcheck": 6,
            "preflight": 5,
            "single_card": 40,
            "two_card": 22,
            "cross_node": 24,
            "soak": 90,
            "fault_injection": 45,
            "batch_retry": 12,
        }
    )

    @property
    def entities(self) -> list[str]:
        return [f"node{n}/gpu{c}" for n in range(1, self.nodes + 1) for c in range(self.cards)]
