"""Is the instrument good enough?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rackgate.observation import Observation
    from rackgate.run import Run
    from rackgate.slo import Check
    from rackgate_fixtures.check import JudgeCheck

pytestmark = pytest.mark.rack_acceptance


def test_slo(rack_slo: Check, observation: Observation, rack_run: Run, rack_check: JudgeCheck) -> None:
    rack_check(rack_slo, rack_run.measure(rack_slo, observation))
