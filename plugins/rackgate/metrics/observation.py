"""The observation of a stage: loads, telemetry, probes and faults, from which metrics are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rackgate.batch.exercise import BatchExercise
from rackgate.loadgen.instrument.reference import InstrumentError
from rackgate.loadgen.results.offered_load import OfferedLoad
from rackgate.nouns.entities import members_of
from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.measurement import Measurement
from rackgate.nouns.target import Target, reaches
from rackgate.telemetry.table import TelemetryTable


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRun:
    """All looks of one load at the same engines, in order. `label` tells runs of one load apart."""

    load: str
    label: str
    looks: tuple[OfferedLoad, ...]

    @property
    def last(self) -> OfferedLoad:
        """The latest look."""
        return self.looks[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that a stage's checks are judged on.

    `probes` holds what was measured directly, by (metric, entity). `excluded` names the entities that
    were quarantined before. `lag_limit_ms` is the schedule lag above which latencies are not accepted,
    `sample_gap_s` the longest pause between two telemetry samples that still counts as covered. `profile`
    is the run's: sign-off counts some events as worse.
    """

    stage: str
    target: Target
    load_runs: tuple[LoadRun, ...] = ()
    telemetry: TelemetryTable | None = None
    probes: Mapping[tuple[str, str], Measurement] = field(default_factory=dict)
    faults: tuple[FaultTimeline, ...] = ()
    instrument: InstrumentError | None = None
    batch: BatchExercise | None = None
    excluded: frozenset[str] = frozenset()
    lag_limit_ms: float = 10.0
    sample_gap_s: float = 1.0
    profile: str = "smoke"

    def load_runs_of(self, load: str | None, label: str | None = None) -> tuple[LoadRun, ...]:
        """Return the runs of a load, of one label if given."""
        return tuple(
            one for one in self.load_runs if one.load == load and (label is None or one.label == label)
        )

    def members(self, entity: str) -> frozenset[str]:
        """Return the engines behind an entity that were not quarantined."""
        return members_of(entity, self.target) - self.excluded

    def reached(self, load: str | None, entity: str) -> frozenset[str]:
        """Return the engines behind an entity that a load reached."""
        called = {engine for load_run in self.load_runs_of(load) for engine in load_run.last.engines}
        return frozenset(engine for engine in self.members(entity) if reaches(called, engine))
