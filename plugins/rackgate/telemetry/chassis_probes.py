"""Preflight's look at the chassis of each node: leaks, power supplies, firmware."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rackgate.telemetry.assembly import chassis_source_of
from rackgate.telemetry.card_probes import probe_readings
from rackgate.telemetry.redfish_client import RedfishProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rackgate.measurement import Measurement
    from rackgate.target import Node

__all__ = ["firmware_of", "probe_chassis"]


def probe_chassis(nodes: Sequence[Node]) -> dict[tuple[str, str], Measurement]:
    """Return what the controller of each node that declares one says of leaks and power supplies."""
    asked = [node for node in nodes if node.access.redfish is not None]
    found: dict[tuple[str, str], Measurement] = {}
    with ThreadPoolExecutor(max_workers=16) as pool:
        for measured in pool.map(_look, asked):
            found |= measured
    return found


def _look(node: Node) -> dict[tuple[str, str], Measurement]:
    if node.access.redfish is None:
        return {}
    source = chassis_source_of(node.name, node.access.redfish)
    try:
        return probe_readings(source.poll(), [node.name])
    finally:
        source.close()


def firmware_of(node: Node) -> dict[str, str]:
    """Return the controller's versions by its ids, where the target pins any; nothing if it is silent."""
    if node.access.redfish is None or not node.expect.firmware:
        return {}
    source = chassis_source_of(node.name, node.access.redfish)
    try:
        return source.firmware()
    except RedfishProblem:
        return {}
    finally:
        source.close()
