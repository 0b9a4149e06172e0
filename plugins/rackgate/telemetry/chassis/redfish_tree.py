"""The paths of a controller's resource tree, discovered once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rackgate.nouns.measurement import Reason
from rackgate.telemetry.chassis.redfish_client import RedfishClient, RedfishProblem

ROOT = "/redfish/v1"
_MOST_MEMBERS = 1024


@dataclass(slots=True)
class ChassisTree:
    """Paths by what they tell; `lost` are those that answered with an error, not that they are not there."""

    environment: list[str] = field(default_factory=list)
    thermal: list[str] = field(default_factory=list)
    fans: list[str] = field(default_factory=list)
    supplies: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    sensors: list[str] = field(default_factory=list)
    old_power: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def discover(client: RedfishClient, chassis: tuple[str, ...] = ()) -> ChassisTree:
    """Return the paths of the chassis with these ids (default: all); raises RedfishProblem.

    A part of the tree that answers with an error is `lost` and takes nothing else with it.
    """
    tree = ChassisTree()
    for path in members(client, f"{ROOT}/Chassis"):
        body = _optional(client, path, tree)
        if chassis and body.get("Id") not in chassis:
            continue
        thermal = _optional(client, link_of(body, "ThermalSubsystem"), tree)
        power = _optional(client, link_of(body, "PowerSubsystem"), tree)
        leak = _optional(client, link_of(thermal, "LeakDetection"), tree)
        tree.environment += _links(body, "EnvironmentMetrics")
        tree.thermal += _links(thermal, "ThermalMetrics")
        tree.fans += _collection(client, link_of(thermal, "Fans"), tree)
        tree.supplies += _collection(client, link_of(power, "PowerSupplies"), tree)
        tree.leaks += _collection(client, link_of(leak, "LeakDetectors"), tree)
        tree.sensors += _collection(client, link_of(body, "Sensors"), tree)
        if not power:
            tree.old_power += _links(body, "Power")
    return tree


def members(client: RedfishClient, path: str) -> list[str]:
    """Return the paths of a collection's members, page by page; raises RedfishProblem."""
    found: list[str] = []
    next_page: str | None = path
    while next_page and len(found) < _MOST_MEMBERS:
        body = client.get(next_page)
        found += [one["@odata.id"] for one in body.get("Members", []) if "@odata.id" in one]
        next_page = body.get("Members@odata.nextLink")
    return found


def link_of(body: Mapping[str, Any], name: str) -> str | None:
    """Return the path that a resource gives under a name."""
    return (body.get(name) or {}).get("@odata.id")


def _links(body: Mapping[str, Any], name: str) -> list[str]:
    path = link_of(body, name)
    return [path] if path else []


def _optional(client: RedfishClient, path: str | None, tree: ChassisTree) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return client.get(path)
    except RedfishProblem as problem:
        _lose(path, problem, tree)
        return {}


def _collection(client: RedfishClient, path: str | None, tree: ChassisTree) -> list[str]:
    if path is None:
        return []
    try:
        return members(client, path)
    except RedfishProblem as problem:
        _lose(path, problem, tree)
        return []


def _lose(path: str, problem: RedfishProblem, tree: ChassisTree) -> None:
    if not problem.answered:
        raise problem
    if problem.reason is not Reason.UNSUPPORTED:
        tree.lost.append(path)
