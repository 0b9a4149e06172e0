"""The metrics that ship, registered through the same hook as anyone's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rackgate.metrics import (
    caches,
    cost,
    faults,
    gaps,
    hardware,
    latency,
    load_metrics,
    load_xids,
    outliers,
    probes,
    rack_energy,
    rates,
    server_ttft,
    xid_gauge,
)

if TYPE_CHECKING:
    from rackgate.metrics.metric import Register

__all__ = ["register_metrics"]


def register_metrics(register: Register) -> None:
    """Register all of them."""
    of_telemetry = (hardware, load_metrics, outliers, load_xids, xid_gauge)
    for module in (
        latency,
        gaps,
        server_ttft,
        rates,
        *of_telemetry,
        cost,
        rack_energy,
        caches,
        faults,
        probes,
    ):
        module.register_metrics(register)
