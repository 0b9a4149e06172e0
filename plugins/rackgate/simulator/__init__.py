"""A rack that is not there: engines, telemetry, a gateway and a batch command as real processes.

`simulated_target` says what the rack is, `start_rack` runs it, `serve` runs it for a person.
"""

from __future__ import annotations

from rackgate.simulator.rack import SimulatedRack, start_rack
from rackgate.simulator.scenarios import Proof, Scenario, scenarios
from rackgate.simulator.serve import serve
from rackgate.simulator.settings import RackSettings, simulated_target

__all__ = [
    "Proof",
    "RackSettings",
    "Scenario",
    "SimulatedRack",
    "scenarios",
    "serve",
    "simulated_target",
    "start_rack",
]
