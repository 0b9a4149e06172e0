"""What a check says: PASS, WARN, UNKNOWN or FAIL; the worst wins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from rackgate.nouns.measurement import Reason


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with the reason why nothing could be decided, if so.

    `margin` is the distance to the bound as a share of it, positive inside; None where the bound is 0
    or the value is missing or infinite. `open` says that more samples could still decide.
    """

    verdict: Verdict
    reason: Reason | None = None
    detail: str = ""
    margin: float | None = None
    open: bool = False
