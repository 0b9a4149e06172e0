"""Offers the production mix, by a schedule, for as long as the profile says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rackgate.metrics.observation import Observation
    from rackgate.run.run import Run
    from rackgate.stages.site import Site
    from rackgate.telemetry.sampler import Sampler
    from rackgate_fixtures.offer import OfferLoad


@pytest.fixture(scope="package")
def observation(
    rack_run: Run, rack_engines: Site, rack_telemetry: Sampler, rack_offer: OfferLoad
) -> Observation:
    """Offer the mix to where users come in, then the other loads that rows name."""
    from rackgate.stages.observing import observe
    from rackgate.stages.planned_loads import loads_of

    endpoints = rack_engines.front(rack_run, "soak")
    loads = loads_of(rack_run, "soak", "mix") if endpoints else ()
    offers = [rack_offer(load, endpoints, stage="soak") for load in loads]
    return observe(rack_run, rack_engines, "soak", offers, rack_telemetry)
