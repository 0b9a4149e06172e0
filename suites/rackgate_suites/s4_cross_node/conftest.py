"""Offers short calls to the gateway and sees which node answers how fast."""

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
    """Offer one-token calls through the gateway, then the other loads that rows name."""
    from rackgate.stages.observing import observe
    from rackgate.stages.planned_loads import loads_of

    endpoints = rack_engines.front(rack_run, "cross_node")
    loads = loads_of(rack_run, "cross_node", "calls") if endpoints else ()
    offers = [rack_offer(load, endpoints, stage="cross_node") for load in loads]
    return observe(rack_run, rack_engines, "cross_node", offers, rack_telemetry)
