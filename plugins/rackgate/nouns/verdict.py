"""What a check says: PASS, WARN, UNKNOWN or FAIL; the worst wins."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Verdict", "worst"]


class Verdict(StrEnum):
    """One of four answers, ordered FAIL > UNKNOWN > WARN > PASS by how bad they are."""

    PASS = "PASS"  # noqa: S105
    WARN = "WARN"
    UNKNOWN = "UNKNOWN"
    FAIL = "FAIL"

    @property
    def accepted(self) -> bool:
        """True for PASS and WARN only: what was not measured is not accepted."""
        return self in (Verdict.PASS, Verdict.WARN)

    @property
    def badness(self) -> int:
        """0 for PASS up to 3 for FAIL."""
        return list(Verdict).index(self)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict; of nothing, UNKNOWN."""
    return max(verdicts, key=lambda verdict: verdict.badness, default=Verdict.UNKNOWN)
