"""Chassis inspection over Redfish: leaks, power supplies, firmware."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rackgate.nouns.measurement import ProbeResults
from rackgate.nouns.node import Node
from rackgate.preflight.cards import probe_readings
from rackgate.telemetry.assembly import chassis_source_of
from rackgate.telemetry.chassis.redfish_client import RedfishProblem

_SENSORS_S = 30.0


def probe_chassis(nodes: Sequence[Node]) -> ProbeResults:
    """Return leaks and power supplies of each node that declares a controller."""
    asked = [node for node in nodes if node.access.redfish is not None]
    found: ProbeResults = {}
    with ThreadPoolExecutor(max_workers=16) as pool:
        for measured in pool.map(_look, asked):
            found |= measured
    return found


def _look(node: Node) -> ProbeResults:
    if node.access.redfish is None:
        return {}
    source = chassis_source_of(node.name, node.access.redfish, sensors_s=_SENSORS_S)
    try:
        return probe_readings(source.poll(), [node.name])
    finally:
        source.close()


def firmware_of_nodes(nodes: Sequence[Node]) -> dict[str, dict[str, str]]:
    """Return firmware versions by node and id; nothing for a silent controller."""
    asked = asked_for_firmware(nodes)
    with ThreadPoolExecutor(max_workers=16) as pool:
        return dict(zip((node.name for node in asked), pool.map(firmware_of, asked), strict=True))


def asked_for_firmware(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes whose firmware matters: the target pins some, or two controllers can be compared."""
    reached = [node for node in nodes if node.access.redfish is not None]
    return [node for node in reached if node.expect.firmware or len(reached) > 1]


def firmware_of(node: Node) -> dict[str, str]:
    """Return a node's firmware versions by the controller's ids; nothing if it is silent."""
    if node.access.redfish is None:
        return {}
    source = chassis_source_of(node.name, node.access.redfish)
    try:
        return source.firmware()
    except RedfishProblem:
        return {}
    finally:
        source.close()
