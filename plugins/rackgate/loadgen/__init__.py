"""Offers load and measures it, in a process of its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackgate.loadgen.instrument.reference import InstrumentError, measure_instrument
    from rackgate.loadgen.results.offered import Counters, OfferedLoad
    from rackgate.loadgen.results.table import SampleTable
    from rackgate.loadgen.running import RunningLoad, start_load
    from rackgate.nouns.endpoint import Endpoint

__all__ = [
    "Counters",
    "Endpoint",
    "InstrumentError",
    "OfferedLoad",
    "RunningLoad",
    "SampleTable",
    "measure_instrument",
    "start_load",
]

_HOMES = {
    "Counters": "results.offered",
    "Endpoint": "requests.plan",
    "InstrumentError": "instrument.reference",
    "OfferedLoad": "results.offered",
    "RunningLoad": "running",
    "SampleTable": "results.table",
    "measure_instrument": "instrument.reference",
    "start_load": "running",
}


def __getattr__(name: str) -> object:
    """Import a public name where it is first used: numpy is heavy, and the worker needs none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
