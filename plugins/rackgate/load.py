"""What is offered: prompt and output lengths, arrivals, stop rule, warm-up and seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Arrival", "Limits", "Load", "Origin"]


class Arrival(StrEnum):
    """When requests start: a fixed number in flight, or by a schedule whatever the answers do."""

    CLOSED = "closed"
    CONSTANT = "constant"
    POISSON = "poisson"


class Origin(StrEnum):
    """The moment from which latency is counted."""

    SENT = "sent"
    SCHEDULED = "scheduled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a request is given up, in seconds; each names the phase that it bounds."""

    connect_s: float = 5.0
    first_token_s: float = 30.0
    stall_s: float = 30.0
    total_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load, frozen, from `[load.NAME]` of the acceptance file.

    A closed load holds `concurrency` requests in flight per engine until `looks[k]` requests per engine
    have run in total (look k of at most three, sizes fixed beforehand). An open load offers
    `rate_per_s` requests per engine for `duration_s` with at most `concurrency` in flight per engine;
    what exceeds the cap is counted as dropped. Warm-up requests come first and are not judged.
    """

    name: str
    prompt_tokens: int
    output_tokens: int
    arrival: Arrival = Arrival.CLOSED
    concurrency: int = 1
    rate_per_s: float | None = None
    duration_s: float | None = None
    looks: tuple[int, ...] = ()
    warmup_requests: int = 3
    workload: str = "assistant"
    seed: int = 1
    limits: Limits = field(default_factory=Limits)
    ttft_bound_ms: float | None = None
    tpot_bound_ms: float | None = None

    @property
    def open(self) -> bool:
        """True if requests start by a schedule."""
        return self.arrival is not Arrival.CLOSED

    @property
    def origin(self) -> Origin:
        """Latency counts from the schedule in an open load, from sending in a closed one."""
        return Origin.SCHEDULED if self.open else Origin.SENT

    @property
    def planned_requests(self) -> int:
        """Requests per engine of the last look, warm-up excluded."""
        if self.open:
            return round((self.rate_per_s or 0.0) * (self.duration_s or 0.0))
        return self.looks[-1] if self.looks else 0
