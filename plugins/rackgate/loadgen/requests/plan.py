"""The plan of one worker, sent to it as JSON."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from rackgate.nouns.decode import decode
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One load against some endpoints; `requests` is per endpoint, None if only the duration ends the load.

    `span_s` is the time between the first and the last start of an open load. The plans of several `workers`
    differ in number and spool only, and `start_file` synchronizes their start. Prompts, ids and schedule do
    not depend on the number of workers.
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

    def own_indexes(self, count: int) -> range:
        """Return the numbers below `count` that belong to this worker; each belongs to exactly one worker."""
        return range(self.worker, count, self.workers)

    @property
    def identity(self) -> str:
        """The seed of prompts, schedule and ids: the same identity gives the same bytes."""
        parts = (self.seed, self.load.seed, self.load.name, self.label, self.look)
        return "|".join(str(part) for part in parts)

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that identify the plan."""
        return hashlib.sha256(self.identity.encode()).hexdigest()[:8]

    @property
    def max_duration_s(self) -> float:
        """An upper bound of the plan's duration: every request reaches its limits."""
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
