"""Runs a batch, kills its runner half-way, and runs it again; then looks back at the whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rackgate.metrics.observation import Observation
    from rackgate.run.run import Run
    from rackgate.stages.site import Site
    from rackgate.telemetry.sampler import Sampler


@pytest.fixture(scope="package")
def observation(rack_run: Run, rack_engines: Site, rack_telemetry: Sampler) -> Observation:
    """Exercise the batch system once, and ask what the kernels told since the run began."""
    from rackgate.metrics.observation import Observation
    from rackgate.stages.batch_retry import run_batch
    from rackgate.stages.observing import whole_run

    exercise = run_batch(rack_run, rack_engines, tasks=60, kill_at=0.5)
    return Observation(
        stage="batch_retry",
        target=rack_engines.target,
        batch=exercise,
        probes=whole_run(rack_run, rack_engines.target, rack_telemetry),
        profile=rack_run.profile,
    )
