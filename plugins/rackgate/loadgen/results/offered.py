"""A load that was offered: its counters, moments and samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rackgate.loadgen.engine_counters.prefix_cache import PrefixCounters
from rackgate.loadgen.machine_clock import MachineClock
from rackgate.loadgen.results.table import SampleTable
from rackgate.nouns.load import Load
from rackgate.nouns.measurement import Reason
from rackgate.telemetry.engine_metrics import TtftHistogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What became of the measured requests; warm-up is in none of them.

    `outcomes` holds the requests that were started, by outcome; `dropped` those that never were.
    """

    scheduled: int = 0
    started: int = 0
    dropped: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)

    @property
    def reconciles(self) -> bool:
        """True if scheduled = started + dropped and started = ok + each failure + cancelled, exactly."""
        return self.scheduled == self.started + self.dropped and self.started == sum(self.outcomes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCost:
    """What one worker process spent, and how late its requests and its event loop were (P99).

    `died` if it gave no result; `machine` is the load machine's name, empty for this one.
    """

    worker: int
    scheduled: int
    cpu_s: float
    schedule_lag_p99_ms: float | None
    loop_lag_p99_ms: float | None
    died: bool = False
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedLoad:
    """A load that was offered, or the reason why it is not known what became of it.

    `start_ns` is the end of warm-up, `end_ns` the last `done`; the steady window ends with the last
    scheduled start. `cpu_s` is what the workers spent between them, `loop_lag_p99_ms` how late the event
    loop of the latest one was; `workers` has both for each. With a reason, `samples` holds what had been
    finished until then. `prefix` holds what each engine that tells counted in its prefix cache meanwhile,
    `server_ttft` its own times to first token; warm-up and other users' requests are included in both.
    `clocks` are those of the load machines, whose moments stand here as moments of this one.
    """

    load: Load
    label: str
    engines: tuple[str, ...]
    start_ns: int = 0
    end_ns: int = 0
    steady_start_ns: int = 0
    steady_end_ns: int = 0
    counters: Counters = field(default_factory=Counters)
    samples: SampleTable | None = None
    samples_path: Path | None = None
    peak_in_flight: int = 0
    cpu_s: float = 0.0
    loop_lag_p99_ms: float | None = None
    workers: tuple[WorkerCost, ...] = ()
    prefix: Mapping[str, PrefixCounters] = field(default_factory=dict)
    clocks: tuple[MachineClock, ...] = ()
    server_ttft: Mapping[str, TtftHistogram] = field(default_factory=dict)
    reason: Reason | None = None
    detail: str = ""
