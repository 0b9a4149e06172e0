"""Runs a batch, kills its runner half-way, and runs it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rackgate.observation import Observation
    from rackgate.run import Run
    from rackgate.site import Site


@pytest.fixture(scope="package")
def observation(rack_run: Run, rack_engines: Site) -> Observation:
    """Exercise the batch system once."""
    from rackgate.batch.acceptance import run_batch
    from rackgate.observation import Observation

    exercise = run_batch(rack_run, rack_engines, tasks=60, kill_at=0.5)
    return Observation(stage="batch_retry", target=rack_engines.target, batch=exercise)
