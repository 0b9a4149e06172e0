"""The one test of every stage: a row and what the stage observed in, a verdict out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackgate.metrics.observation import Observation
    from rackgate.nouns.slo import Check
    from rackgate.run.run import Run
    from rackgate_fixtures.check import JudgeCheck


def test_slo(rack_slo: Check, observation: Observation, rack_run: Run, rack_check: JudgeCheck) -> None:
    """Judge one check; the stage's own `observation` fixture has measured."""
    rack_check(rack_slo, rack_run.measure(rack_slo, observation))
