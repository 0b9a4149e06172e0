"""Measures stage preflight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rackgate.metrics.observation import Observation
    from rackgate.run.run import Run


@pytest.fixture(scope="package")
def observation(rack_run: Run, request: pytest.FixtureRequest) -> Observation:
    """See `rackgate.stages.preflight`; the engines are started in its course, after the hosts were seen."""
    from rackgate.stages.preflight import observe_preflight

    return observe_preflight(rack_run, lambda: request.getfixturevalue("rack_engines"))
