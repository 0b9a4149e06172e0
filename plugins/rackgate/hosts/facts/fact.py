"""A fact of a host."""

from __future__ import annotations

from dataclasses import dataclass

from rackgate.nouns.measurement import Reason


@dataclass(frozen=True, slots=True)
class Fact:
    """A value as text, or the reason why there is none. `detail` may name the source of a value."""

    value: str | None
    reason: Reason | None = None
    detail: str = ""
