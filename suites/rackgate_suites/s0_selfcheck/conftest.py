"""Measures stage selfcheck."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rackgate.metrics.observation import Observation
    from rackgate.run.run import Run


@pytest.fixture(scope="package")
def observation(rack_run: Run) -> Observation:
    """See `rackgate.stages.selfcheck`."""
    from rackgate.stages.selfcheck import observe_selfcheck

    return observe_selfcheck(rack_run)
