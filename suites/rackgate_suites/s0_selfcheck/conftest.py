"""Measures the load generator's own error against a reference server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rackgate.metrics.observation import Observation
    from rackgate.run.run import Run


@pytest.fixture(scope="package")
def observation(rack_run: Run) -> Observation:
    """Offer the reference load once and compare every reported TTFT with the true one."""
    from rackgate.loadgen import measure_instrument
    from rackgate.metrics.observation import Observation
    from rackgate.stages.load_runs import lag_limit_ms, record_look
    from rackgate.stages.selfcheck import reference_of

    load, size = reference_of(rack_run)
    rack_run.on_progress(f"selfcheck: {size}")
    rack_run.event("reference_load", f"selfcheck: {size}")
    instrument = measure_instrument(
        load,
        samples_path=rack_run.sample_file("selfcheck.reference"),
        handicap=rack_run.instrument_handicap,
        seed=rack_run.seed,
    )
    if instrument.offered is not None:
        record_look(rack_run, "selfcheck", instrument.offered)
    return Observation(
        stage="selfcheck", target=rack_run.target, instrument=instrument, lag_limit_ms=lag_limit_ms(rack_run)
    )
