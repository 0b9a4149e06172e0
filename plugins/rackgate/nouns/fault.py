"""A fault: inject, prove, heal, prove healed. Always healed; every moment recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Fault(Protocol):
    """Something that is broken on purpose. Each step raises nothing for what the rack did."""

    kind: str
    entity: str

    def inject(self) -> None:
        """Break it."""

    def prove(self) -> bool:
        """Return whether the effect is there."""

    def heal(self) -> None:
        """Undo it; safe to call twice, and when inject never ran."""

    def prove_healed(self) -> bool:
        """Return whether the entity serves again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTimeline:
    """When what happened, in monotonic nanoseconds; None for what never came."""

    kind: str
    entity: str
    injected_ns: int | None = None
    proven_ns: int | None = None
    healed_ns: int | None = None
    proven_healed_ns: int | None = None
    detail: str = ""
