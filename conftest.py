"""Checkout glue: `pytest` runs the framework's tests, `pytest -m rack_acceptance` the suites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out `tests/` in an acceptance run and `suites/` in any other."""
    from rackgate.plugin.options import is_active

    unwanted = HERE / ("tests" if is_active(config) else "suites")
    if unwanted == collection_path or unwanted in collection_path.parents:
        return True
    return None
