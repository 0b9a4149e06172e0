"""Offers each load to each engine by itself, all engines side by side."""

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
    """Offer the interactive load, then the others that rows name, to every engine that is not quarantined."""
    from rackgate.stages.observing import observe
    from rackgate.stages.planned_loads import loads_of

    engines = rack_engines.qualified(rack_run, "single_card")
    endpoints = [rack_engines.endpoint(engine) for engine in engines]
    loads = loads_of(rack_run, "single_card", "interactive") if endpoints else ()
    offers = [rack_offer(load, endpoints, stage="single_card") for load in loads]
    return observe(rack_run, rack_engines, "single_card", offers, rack_telemetry)
