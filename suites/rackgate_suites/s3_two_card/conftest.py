"""Offers one load to each card of a pair alone, then to both together."""

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
    """One pair after the other within a node, the nodes side by side."""
    from rackgate.stages.observing import observe, pair_rounds
    from rackgate.stages.planned_loads import loads_of

    offers = [
        rack_offer(load, endpoints, stage="two_card", label=label)
        for load in loads_of(rack_run, "two_card", "scaling")
        for label, endpoints in pair_rounds(rack_run, rack_engines)
    ]
    return observe(rack_run, rack_engines, "two_card", offers, rack_telemetry)
