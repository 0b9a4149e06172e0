"""A rack that is not there: engines, telemetry, a gateway and a batch command as real processes.

`simulated_target` says what the rack is, `start_rack` runs it, `serve` runs it for a person.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackgate.simulator.foreground import serve
    from rackgate.simulator.rack import SimulatedRack, start_rack
    from rackgate.simulator.scenarios import Proof, Scenario
    from rackgate.simulator.settings import RackSettings, chosen_scenario, simulated_target

__all__ = [
    "Proof",
    "RackSettings",
    "Scenario",
    "SimulatedRack",
    "chosen_scenario",
    "serve",
    "simulated_target",
    "start_rack",
]

_HOMES = {
    "Proof": "scenarios",
    "RackSettings": "settings",
    "Scenario": "scenarios",
    "SimulatedRack": "rack",
    "chosen_scenario": "settings",
    "serve": "foreground",
    "simulated_target": "settings",
    "start_rack": "rack",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use: the rack's processes import this package and need none."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
