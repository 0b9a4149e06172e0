"""The shipped faults by kind, family by family."""

from __future__ import annotations

from collections.abc import Mapping

from rackgate.faults.engine_faults import KillEngine
from rackgate.nouns.fault import FaultFactory

SHIPPED_FAULTS: Mapping[str, FaultFactory] = {
    "kill": KillEngine,
}
