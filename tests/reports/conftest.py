"""Runs that several tests read; makes the generator of synthetic runs importable beside its tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def good(tmp_path: Path) -> Path:
    from synthetic import Scenario, make_run

    return make_run(tmp_path / "good", Scenario(grade="accelerator"))


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    from synthetic import Scenario, make_run

    return make_run(tmp_path / "slow", Scenario(slow="node1/gpu1"))
