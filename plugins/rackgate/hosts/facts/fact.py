"""One thing that a host says of itself."""

from __future__ import annotations

from dataclasses import dataclass

from rackgate.nouns.measurement import Reason


@dataclass(frozen=True, slots=True)
class Fact:
    """One value in words, or why there is none. `detail` may say where a value is from."""

    value: str | None
    reason: Reason | None = None
    detail: str = ""
