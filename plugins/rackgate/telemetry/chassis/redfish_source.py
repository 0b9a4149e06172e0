"""Chassis source: power, temperatures, fans, supplies, sensors and latched leak detectors over Redfish."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rackgate.nouns.measurement import Reason
from rackgate.telemetry.chassis.redfish import LeakLatch, as_number, read_sensor
from rackgate.telemetry.chassis.redfish_client import RedfishClient, RedfishLogin, RedfishProblem
from rackgate.telemetry.chassis.redfish_tree import ROOT, ChassisTree, discover, link_of, members
from rackgate.telemetry.reading import CHASSIS_FIELDS, Reading

_SHOWN = 5


@dataclass(slots=True)
class _Look:
    """One look: values and words by field, and what could not be read of it."""

    values: dict[str, float] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)
    unread: dict[str, list[str]] = field(default_factory=dict)

    def say(self, name: str, *texts: str) -> None:
        self.words.setdefault(name, []).extend(texts)

    def lose(self, names: tuple[str, ...], text: str) -> None:
        for name in names:
            self.unread.setdefault(name, []).append(text)

    def add(self, name: str, number: float) -> None:
        self.values[name] = self.values.get(name, 0.0) + number

    def highest(self, name: str, numbers: list[float | None]) -> None:
        known = [one for one in (*numbers, self.values.get(name)) if one is not None]
        if known:
            self.values[name] = max(known)


class RedfishSource:
    """Readings of one node's chassis; asks the controller at most every `every_s`, at most 10 s.

    `chassis` chooses by id which chassis count (default: all). A detector that was wet once stays wet.
    Sensors can be hundreds: those of each poll are read for `sensors_s` at most, in turn, and
    `chassis_findings` is known once all were read. A resource that answers with an error takes the fields
    that it is a part of, and no other.
    """

    def __init__(
        self,
        node: str,
        url: str,
        login: RedfishLogin,
        *,
        every_s: float = 5.0,
        timeout_s: float = 5.0,
        sensors_s: float = 1.0,
        chassis: tuple[str, ...] = (),
    ) -> None:
        self.name = f"redfish {node}"
        self.latch = LeakLatch()
        self._node = node
        self._client = RedfishClient(url, login, timeout_s=timeout_s)
        self._every_s = min(every_s, 10.0)
        self._sensors_s = sensors_s
        self._chassis = chassis
        self._tree: ChassisTree | None = None
        self._asked = -1e9
        self._next_sensor = 0
        self._sensors: dict[str, tuple[str, str]] = {}

    def poll(self) -> list[Reading]:
        """Return every chassis field, or why there is none; nothing if it is not time yet."""
        if time.monotonic() - self._asked < self._every_s:
            return []
        self._asked = time.monotonic()
        try:
            self._tree = self._tree or discover(self._client, self._chassis)
            look = self._look(self._tree)
        except RedfishProblem as problem:
            self._tree = None
            return self.nothing(problem.reason, str(problem))
        t_ns = time.perf_counter_ns()
        return [self._reading(t_ns, name, look) for name in CHASSIS_FIELDS]

    def hurry(self) -> None:
        """Ask at the next poll: the end of a load is to be covered too."""
        self._asked = -1e9

    def firmware(self) -> dict[str, str]:
        """Return versions by the inventory's ids; raises RedfishProblem."""
        found = {}
        for path in members(self._client, f"{ROOT}/UpdateService/FirmwareInventory"):
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

    def _look(self, tree: ChassisTree) -> _Look:
        look = _Look()
        self._power(tree, look)
        for _, body in self._bodies(tree.thermal, look, "chassis_temperature_c"):
            hottest = [as_number(one.get("Reading")) for one in body.get("TemperatureReadingsCelsius", [])]
            look.highest("chassis_temperature_c", hottest)
        self._leaks(tree, look)
        self._supplies(tree, look)
        if tree.fans or tree.sensors or tree.lost:
            look.add("chassis_findings", 0.0)
            look.lose(("chassis_findings",) if tree.lost else (), ", ".join(tree.lost))
        self._fans(tree, look)
        self._read_sensors(tree, look)
        return look

    def _power(self, tree: ChassisTree, look: _Look) -> None:
        names = ("chassis_power_w", "chassis_temperature_c")
        for _, body in self._bodies(tree.environment, look, *names):
            watts = as_number((body.get("PowerWatts") or {}).get("Reading"))
            if watts is not None:
                look.add("chassis_power_w", watts)
            degrees = {"Status": {"State": "Enabled"}, **(body.get("TemperatureCelsius") or {})}
            look.highest("chassis_temperature_c", [read_sensor(degrees).value])
        for _, body in self._bodies(tree.old_power, look, "chassis_power_w"):
            for one in body.get("PowerControl", []):
                watts = as_number(one.get("PowerConsumedWatts"))
                if watts is not None:
                    look.add("chassis_power_w", watts)

    def _fans(self, tree: ChassisTree, look: _Look) -> None:
        for name, body in self._bodies(tree.fans, look, "fan_rpm", "fan_rpm_lowest", "chassis_findings"):
            status, speed = body.get("Status") or {}, body.get("SpeedPercent") or {}
            if status.get("State") == "Absent":
                continue
            turns = as_number(speed.get("SpeedRPM"))
            if turns is not None:
                look.highest("fan_rpm", [turns])
                look.values["fan_rpm_lowest"] = min(turns, look.values.get("fan_rpm_lowest", turns))
            moving = turns if turns is not None else as_number(speed.get("Reading"))
            found = _health(name, body)
            if moving == 0 and status.get("State") in (None, "Enabled"):
                found.append(f"{name}: stands still")
            look.add("chassis_findings", float(bool(found)))
            look.say("chassis_findings", *found)

    def _supplies(self, tree: ChassisTree, look: _Look) -> None:
        if tree.supplies:
            look.values |= {"power_supplies_ok": 0.0, "power_supplies_bad": 0.0}
        names = ("power_supplies_ok", "power_supplies_bad", "power_supply_input_w")
        for name, body in self._bodies(tree.supplies, look, *names):
            status = body.get("Status") or {}
            if status.get("State") == "Absent":
                continue
            healthy = status.get("State") == "Enabled" and status.get("Health") == "OK"
            look.add("power_supplies_ok" if healthy else "power_supplies_bad", 1.0)
            if not healthy:
                words = f"{name}: {status.get('State')}, health {status.get('Health')}"
                look.say("power_supplies_bad", words)
            path = link_of(body, "Metrics")
            for _, metrics in self._bodies([path] if path else [], look, "power_supply_input_w"):
                watts = as_number((metrics.get("InputPowerWatts") or {}).get("Reading"))
                if watts is not None:
                    look.add("power_supply_input_w", watts)

    def _leaks(self, tree: ChassisTree, look: _Look) -> None:
        states: dict[str, str] = {}
        for path in tree.leaks:  # names need not differ, paths do
            try:
                body: Mapping[str, Any] = self._client.get(path)
            except RedfishProblem as problem:
                if not problem.answered:
                    raise
                body = {}  # it says nothing now; that it was wet is not forgotten
            states[path] = self.latch.see(path, body)
        for state in ("ok", "wet", "unknown") if states else ():
            mine = [path.rsplit("/", 1)[-1] for path, known in states.items() if known == state]
            look.values[f"leak_detectors_{state}"] = float(len(mine))
            if state != "ok":
                look.say(f"leak_detectors_{state}", *mine)

    def _read_sensors(self, tree: ChassisTree, look: _Look) -> None:
        """Read as many sensors as there is time for, going on where the last look stopped."""
        ends = time.monotonic() + self._sensors_s
        for _ in tree.sensors:
            if time.monotonic() > ends:
                break
            path = tree.sensors[self._next_sensor % len(tree.sensors)]
            self._next_sensor += 1
            found = self._bodies([path], look)
            sensor = read_sensor(found[0][1]) if found else None
            self._sensors[path] = (
                (sensor.name or path, sensor.state)
                if sensor
                else (path, "unknown: it answered with an error")
            )
        if len(self._sensors) < len(tree.sensors):
            text = f"{len(self._sensors)} of {len(tree.sensors)} sensors were read in time"
            look.lose(("chassis_findings",), text)
        for name, state in self._sensors.values():
            if state.startswith("unknown"):
                look.lose(("chassis_findings",), f"{name}: {state}")
            elif state.startswith(("critical", "warning")):
                look.add("chassis_findings", 1.0)
                look.say("chassis_findings", f"{name}: {state}")

    def _bodies(self, paths: list[str], look: _Look, *names: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the resources that answer; one that answers with an error leaves `names` without a value."""
        found = []
        for path in paths:
            try:
                body = self._client.get(path)
            except RedfishProblem as problem:
                if not problem.answered:
                    raise
                look.lose(names, str(problem))
                continue
            found.append((str(body.get("Name") or body.get("Id") or path), body))
        return found

    def _reading(self, t_ns: int, name: str, look: _Look) -> Reading:
        value, unread = look.values.get(name), look.unread.get(name)
        words = "; ".join(look.words.get(name, [])[:_SHOWN])
        bad = name in ("chassis_findings", "power_supplies_bad") and value
        if unread and not bad:  # a fault that was seen counts, whatever else was not
            text = f"not read: {'; '.join(unread[:_SHOWN])}"
            return Reading(t_ns, self._node, self._node, name, None, Reason.ABSENT, text)
        if value is not None:
            return Reading(t_ns, self._node, self._node, name, value, None, words)
        text = "the controller's tree has no such resource"
        return Reading(t_ns, self._node, self._node, name, None, Reason.UNSUPPORTED, text)


def _health(name: str, body: Mapping[str, Any]) -> list[str]:
    status = body.get("Status") or {}
    health = status.get("Health")
    return [f"{name}: {health}"] if health in ("Warning", "Critical") else []
