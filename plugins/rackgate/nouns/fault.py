"""A fault that is injected on purpose, and the times of its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rackgate.nouns.engine import Engine


class Fault(Protocol):
    """A fault of one entity. A step that raises counts as failed; a proof that sees nothing returns False."""

    kind: str
    entity: str

    def inject(self) -> None:
        """Break the entity."""

    def prove(self) -> bool:
        """Return whether the effect is there."""

    def heal(self) -> None:
        """Undo it; safe to call twice, and when inject never ran."""

    def prove_healed(self) -> bool:
        """Return whether the entity serves again."""


FaultFactory = Callable[[Engine, float], Fault]
"""Makes a fault of an engine; the number is the longest time of each proof, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTimeline:
    """When each step of a fault succeeded, in monotonic nanoseconds; None for a step that did not."""

    kind: str
    entity: str
    injected_ns: int | None = None
    proven_ns: int | None = None
    healed_ns: int | None = None
    proven_healed_ns: int | None = None
    detail: str = ""
