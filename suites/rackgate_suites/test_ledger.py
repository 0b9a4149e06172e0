"""Nothing that was asked may end without a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rackgate.run.run import Run

pytestmark = pytest.mark.rack_acceptance


def test_every_asked_check_has_a_record(rack_run: Run) -> None:
    gaps = rack_run.ledger.missing()
    if gaps:
        pytest.fail(
            f"UNKNOWN: {len(gaps)} checks were asked and have no verdict: {', '.join(gaps)}", pytrace=False
        )
