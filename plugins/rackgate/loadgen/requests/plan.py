"""What one worker is told to offer, as JSON on its standard input."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from rackgate.nouns.decode import decode
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One load offered to some endpoints; `requests` counts per endpoint, None means by duration only.

    `span_s` is the time between the first and the last start of an open load. Of several `workers` each
    gets the same plan but for its number and its spool; they begin together by the file `start_file`.
    Prompts, ids and moments depend on none of that.
    """

    load: Load
    endpoints: tuple[Endpoint, ...]
    label: str
    spool: str
    seed: int
    look: int = 0
    requests: int | None = None
    warmup: bool = True
    instrument_fault: str = ""
    span_s: float = 0.0
    workers: int = 1
    worker: int = 0
    start_file: str = ""

    def dealt(self, count: int) -> range:
        """Return the numbers below `count` that are this worker's: every one of them is exactly one's."""
        return range(self.worker, count, self.workers)

    @property
    def identity(self) -> str:
        """What makes this plan's prompts, schedule and ids its own; the same parts, the same bytes."""
        parts = (self.seed, self.load.seed, self.load.name, self.label, self.look)
        return "|".join(str(part) for part in parts)

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits of the identity."""
        return hashlib.sha256(self.identity.encode()).hexdigest()[:8]

    @property
    def longest_s(self) -> float:
        """A bound on the plan's duration when every request runs into its limits, in seconds."""
        limits = self.load.limits
        each_s = limits.connect_s + limits.total_s + self.load.think_s + 1.0
        concurrency = max(1, self.load.concurrency)
        rounds = 1 + (self.load.warmup_requests if self.warmup else 0) / concurrency
        if not self.load.open and self.load.duration_s is None:
            rounds += (self.requests or 0) / concurrency
        planned_s = self.load.ramp_s + (self.load.duration_s or 0.0)
        if self.load.open:
            planned_s = max(self.span_s, planned_s)
            rounds += self.load.turns - 1
            if self.load.rate_per_s:
                planned_s = max(self.span_s, (self.requests or 0) / self.load.rate_per_s)
        return planned_s + (rounds + 1) * each_s + 60.0

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self), default=dict)

    @classmethod
    def from_json(cls, text: str) -> LoadPlan:
        """Return the plan of `to_json`."""
        return decode(cls, json.loads(text))
