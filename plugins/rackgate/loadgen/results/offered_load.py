"""The result of a load: its counters, moments and samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rackgate.loadgen.engine_counters import PrefixCounters
from rackgate.loadgen.machine_clock import MachineClock
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.nouns.load import Load
from rackgate.nouns.measurement import Reason
from rackgate.telemetry.engine_metrics import TtftHistogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Counts of the measured requests, without warm-up.

    `outcomes` counts the started requests by outcome; `dropped` requests were never started.
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
    """CPU time of one worker process, and the P99 lag of its requests and of its event loop.

    `died` if it returned no result; `machine` is the load machine's name, empty for this machine.
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
    """The result of a load, or the `reason` why it is incomplete.

    `start_ns` is the end of warm-up, `end_ns` the last `done_ns`; the steady window ends with the last
    scheduled start. `cpu_s` is the sum and `loop_lag_p99_ms` the maximum of all `workers`. With a reason,
    `samples` holds the requests that had finished. `prefix` holds each engine's prefix-cache counters and
    `server_ttft` its TTFT histogram during the load; both include warm-up and other users' requests.
    `clocks` are those of the load machines; all moments are on this machine's clock.
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
