"""Kills an engine while load runs, and heals it."""

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
    """Offer the fault load to the gateway, kill the last engine after a fifth of it, restart it at half."""
    from rackgate.stages.observing import observe, offer_through_kill

    offers, faults = offer_through_kill(rack_run, rack_engines)
    return observe(rack_run, rack_engines, "fault_injection", offers, rack_telemetry, faults=faults)
