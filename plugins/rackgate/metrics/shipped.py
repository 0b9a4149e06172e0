"""The metrics that ship, registered through the same hook as anyone's."""

from __future__ import annotations

from rackgate.metrics import probed
from rackgate.metrics.hardware import (
    card_health,
    card_signals,
    cost,
    kernel_events,
    node_energy,
    outliers,
    xid_gauge,
)
from rackgate.metrics.metric import Register
from rackgate.metrics.registry import Registry
from rackgate.metrics.requests import caches, faults, gaps, latency, rates, server_ttft


def register_metrics(register: Register) -> None:
    """Register all of them."""
    of_requests = (latency, gaps, server_ttft, rates, caches, faults)
    of_hardware = (card_signals, card_health, outliers, kernel_events, xid_gauge, cost, node_energy)
    for module in (*of_requests, *of_hardware, probed):
        module.register_metrics(register)


def shipped_registry() -> Registry:
    """Return a new registry that holds the shipped metrics."""
    registry = Registry()
    register_metrics(registry.add_metric)
    return registry
