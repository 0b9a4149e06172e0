"""The verdict of a whole run, from its ledger and from tests that are no checks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackgate.judging.ledger import Ledger
from rackgate.judging.message import headline, scope_text
from rackgate.judging.mtbf import proven_mtbf


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """Whether a run is accepted, and its last record.

    `complete` is False for a run that was stopped; `partial_why` says what of the acceptance was not asked.
    `other_failures` names failed tests that are no checks, `not_checked` tests that were skipped, with why;
    `failed` says that a test failed, whichever. The soak offered load for `soaked_s`.
    """

    ledger: Ledger
    complete: bool
    partial_why: Collection[str] = ()
    other_failures: Collection[str] = ()
    not_checked: Mapping[str, str] = field(default_factory=dict)
    failed: bool = False
    soaked_s: float = 0.0

    @property
    def met(self) -> bool:
        """Whether every asked check was answered and is met; a partial run can meet its part."""
        judged = self.complete and self.ledger.judged > 0 and self.ledger.verdict.accepted
        return judged and not (self.failed or self.other_failures or self.not_checked)

    @property
    def headline(self) -> str:
        """The run in a line."""
        return headline(
            self.ledger,
            complete=self.complete,
            partial=bool(self.partial_why),
            other_failures=len(self.other_failures),
            not_checked=len(self.not_checked),
        )

    def entry(self, exit_status: int) -> dict[str, Any]:
        """Return what the last record says."""
        return {
            "verdict": str(self.ledger.verdict),
            "accepted": self.met and not self.partial_why,
            "headline": self.headline,
            "scope_text": scope_text(self.ledger),
            "endurance": proven_mtbf(self.ledger, self.soaked_s),
            "counts": self.ledger.counts(),
            "other_failures": sorted(self.other_failures),
            "not_checked": dict(self.not_checked),
            "exit_status": exit_status,
            "complete": self.complete,
            "partial": bool(self.partial_why),
            "partial_why": list(self.partial_why),
        }
