"""Measures stage single_card."""

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
    """See `rackgate.stages.single_card`."""
    from rackgate.stages.single_card import observe_single_card

    return observe_single_card(rack_run, rack_engines, rack_telemetry)
