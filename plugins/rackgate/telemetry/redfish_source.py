"""A node's chassis as a source: power, temperatures, fans, supplies and latched leak detectors."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rackgate.measurement import Reason
from rackgate.telemetry.reading import CHASSIS_FIELDS, Reading
from rackgate.telemetry.redfish import LeakLatch, as_number, read_sensor
from rackgate.telemetry.redfish_client import RedfishClient, RedfishProblem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rackgate.telemetry.redfish_client import RedfishLogin

__all__ = ["RedfishSource"]

_ROOT = "/redfish/v1"
_MOST_MEMBERS = 256


@dataclass(slots=True)
class _Tree:
    """Paths that are polled, found once."""

    environment: list[str] = field(default_factory=list)
    thermal: list[str] = field(default_factory=list)
    fans: list[str] = field(default_factory=list)
    supplies: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    old_power: list[str] = field(default_factory=list)


class RedfishSource:
    """Readings of one node's chassis; asks the controller at most every `every_s`, at most 10 s.

    `chassis` chooses by id which chassis count (default: all). A detector that was wet once stays wet.
    `findings` names each sensor, supply and detector that is not as it should be.
    """

    def __init__(
        self,
        node: str,
        url: str,
        login: RedfishLogin,
        *,
        every_s: float = 5.0,
        timeout_s: float = 5.0,
        chassis: tuple[str, ...] = (),
    ) -> None:
        self.name = f"redfish {node}"
        self.findings: tuple[str, ...] = ()
        self.latch = LeakLatch()
        self._node = node
        self._client = RedfishClient(url, login, timeout_s=timeout_s)
        self._every_s = min(every_s, 10.0)
        self._chassis = chassis
        self._tree: _Tree | None = None
        self._asked = -1e9

    def poll(self) -> list[Reading]:
        """Return every chassis field, or why there is none; nothing if it is not time yet."""
        if time.monotonic() - self._asked < self._every_s:
            return []
        self._asked = time.monotonic()
        try:
            self._tree = self._tree or self._discovered()
            return self._readings(self._tree)
        except RedfishProblem as problem:
            self._tree = None
            return self.nothing(problem.reason, str(problem))

    def firmware(self) -> dict[str, str]:
        """Return versions by the inventory's ids; raises RedfishProblem."""
        found = {}
        for path in self._members(f"{_ROOT}/UpdateService/FirmwareInventory"):
            body = self._client.get(path)
            if body.get("Version"):
                found[str(body.get("Id") or path.rsplit("/", 1)[-1])] = str(body["Version"])
        return found

    def nothing(self, reason: Reason, detail: str) -> list[Reading]:
        """Return every chassis field without a value."""
        t_ns = time.perf_counter_ns()
        return [Reading(t_ns, self._node, self._node, name, None, reason, detail) for name in CHASSIS_FIELDS]

    def close(self) -> None:
        """Log off."""
        self._client.close()

    def _discovered(self) -> _Tree:
        tree = _Tree()
        for path in self._members(f"{_ROOT}/Chassis"):
            body = self._client.get(path)
            if self._chassis and body.get("Id") not in self._chassis:
                continue
            thermal = self._optional(_link(body, "ThermalSubsystem"))
            power = self._optional(_link(body, "PowerSubsystem"))
            tree.environment += _links(body, "EnvironmentMetrics")
            tree.thermal += _links(thermal, "ThermalMetrics")
            tree.fans += self._optional_members(_link(thermal, "Fans"))
            tree.supplies += self._optional_members(_link(power, "PowerSupplies"))
            leak = self._optional(_link(thermal, "LeakDetection"))
            tree.leaks += self._optional_members(_link(leak, "LeakDetectors"))
            if not power:
                tree.old_power += _links(body, "Power")
        return tree

    def _members(self, path: str) -> list[str]:
        found: list[str] = []
        next_page: str | None = path
        while next_page and len(found) < _MOST_MEMBERS:
            body = self._client.get(next_page)
            found += [one["@odata.id"] for one in body.get("Members", []) if "@odata.id" in one]
            next_page = body.get("Members@odata.nextLink")
        return found

    def _optional(self, path: str | None) -> dict[str, Any]:
        if path is None:
            return {}
        try:
            return self._client.get(path)
        except RedfishProblem as problem:
            if problem.reason is Reason.UNSUPPORTED:
                return {}
            raise

    def _optional_members(self, path: str | None) -> list[str]:
        try:
            return self._members(path) if path else []
        except RedfishProblem as problem:
            if problem.reason is Reason.UNSUPPORTED:
                return []
            raise

    def _readings(self, tree: _Tree) -> list[Reading]:
        values: dict[str, float] = {}
        findings: list[str] = []
        self._power(tree, values)
        for _, body in self._bodies(tree.thermal):
            hottest = [as_number(one.get("Reading")) for one in body.get("TemperatureReadingsCelsius", [])]
            _highest(values, "chassis_temperature_c", hottest)
        for name, body in self._bodies(tree.fans):
            speed = body.get("SpeedPercent") or {}
            _highest(values, "fan_rpm", [as_number(speed.get("SpeedRPM"))])
            findings += _health(name, body)
        self._supplies(tree, values, findings)
        self._leaks(tree, values, findings)
        self.findings = tuple(findings)
        t_ns = time.perf_counter_ns()
        return [self._reading(t_ns, name, values.get(name)) for name in CHASSIS_FIELDS]

    def _power(self, tree: _Tree, values: dict[str, float]) -> None:
        watts = [
            as_number((body.get("PowerWatts") or {}).get("Reading"))
            for _, body in self._bodies(tree.environment)
        ]
        for _, body in self._bodies(tree.old_power):
            watts += [as_number(one.get("PowerConsumedWatts")) for one in body.get("PowerControl", [])]
        known = [one for one in watts if one is not None]
        if known:
            values["chassis_power_w"] = sum(known)
        degrees = [
            read_sensor({"Status": {"State": "Enabled"}, **(body.get("TemperatureCelsius") or {})}).value
            for _, body in self._bodies(tree.environment)
        ]
        _highest(values, "chassis_temperature_c", degrees)

    def _supplies(self, tree: _Tree, values: dict[str, float], findings: list[str]) -> None:
        good = bad = 0
        for name, body in self._bodies(tree.supplies):
            status = body.get("Status") or {}
            if status.get("State") == "Absent":
                continue
            healthy = status.get("State") == "Enabled" and status.get("Health") == "OK"
            good, bad = good + healthy, bad + (not healthy)
            findings += _health(name, body)
            metrics = self._optional(_link(body, "Metrics"))
            watts = as_number((metrics.get("InputPowerWatts") or {}).get("Reading"))
            if watts is not None:
                values["power_supply_input_w"] = values.get("power_supply_input_w", 0.0) + watts
        if tree.supplies:
            values |= {"power_supplies_ok": float(good), "power_supplies_bad": float(bad)}

    def _leaks(self, tree: _Tree, values: dict[str, float], findings: list[str]) -> None:
        states: dict[str, str] = {}
        for path in tree.leaks:  # names need not differ, paths do
            states[path] = self.latch.see(path, self._client.get(path))
        for path, state in states.items():
            if state != "ok":
                findings.append(f"leak detector {path.rsplit('/', 1)[-1]}: {state}")
        if states:
            for state in ("ok", "wet", "unknown"):
                values[f"leak_detectors_{state}"] = float(list(states.values()).count(state))

    def _bodies(self, paths: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        for path in paths:
            body = self._client.get(path)
            yield str(body.get("Name") or body.get("Id") or path), body

    def _reading(self, t_ns: int, name: str, value: float | None) -> Reading:
        if value is not None:
            return Reading(t_ns, self._node, self._node, name, value)
        text = "the controller's tree has no such resource"
        return Reading(t_ns, self._node, self._node, name, None, Reason.UNSUPPORTED, text)


def _highest(values: dict[str, float], name: str, found: list[float | None]) -> None:
    known = [one for one in (*found, values.get(name)) if one is not None]
    if known:
        values[name] = max(known)


def _health(name: str, body: Mapping[str, Any]) -> list[str]:
    status = body.get("Status") or {}
    health = status.get("Health")
    return [f"{name}: {health}"] if health in ("Warning", "Critical") else []


def _link(body: Mapping[str, Any], name: str) -> str | None:
    return (body.get(name) or {}).get("@odata.id")


def _links(body: Mapping[str, Any], name: str) -> list[str]:
    path = _link(body, name)
    return [path] if path else []
