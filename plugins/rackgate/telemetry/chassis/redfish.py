"""Redfish (DMTF) resources as our fields: power, temperatures, fans, supplies, leak detectors, firmware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorReading:
    """A sensor's number, and `ok`, `absent`, `unknown: ...`, `warning (...)` or `critical (...)`."""

    name: str
    value: float | None
    state: str
    unit: str = ""


_LIMITS = (
    ("UpperFatal", "critical", 1),
    ("UpperCritical", "critical", 1),
    ("UpperCaution", "warning", 1),
    ("LowerFatal", "critical", -1),
    ("LowerCritical", "critical", -1),
    ("LowerCaution", "warning", -1),
)


def as_number(raw: Any) -> float | None:
    """Return a number that may be written as text, None for anything else."""
    if isinstance(raw, bool) or raw is None:
        return None
    try:
        return float(raw)
    except (TypeError, ValueError):
        return None


def read_sensor(body: Mapping[str, Any]) -> SensorReading:
    """Return what a sensor says; its `Status.State` decides whether a missing number is a finding."""
    name, unit = str(body.get("Name") or body.get("Id") or ""), str(body.get("ReadingUnits") or "")
    state = (body.get("Status") or {}).get("State")
    value = as_number(body.get("Reading"))
    if state in ("Absent", "Disabled", "UnavailableOffline"):
        return SensorReading(name=name, value=None, state=state.lower(), unit=unit)
    if value is None:
        text = (
            "unknown: enabled but no reading" if state == "Enabled" else f"unknown: state {state}, no reading"
        )
        return SensorReading(name=name, value=None, state=text, unit=unit)
    thresholds = body.get("Thresholds") or {}
    for limit, word, sign in _LIMITS:
        bound = as_number((thresholds.get(limit) or {}).get("Reading"))
        if bound is not None and sign * value >= sign * bound:
            sense = ">=" if sign > 0 else "<="
            return SensorReading(name=name, value=value, state=f"{word} ({sense} {bound:g})", unit=unit)
    health = (body.get("Status") or {}).get("Health")
    if health in ("Warning", "Critical"):
        return SensorReading(
            name=name, value=value, state=f"{health.lower()} (the controller says so)", unit=unit
        )
    return SensorReading(name=name, value=value, state="ok", unit=unit)


def leak_state(body: Mapping[str, Any]) -> str:
    """Return `ok`, `wet` or `unknown` of a leak detector; one that is not enabled says nothing."""
    state = (body.get("Status") or {}).get("State")
    detector = body.get("DetectorState")
    if detector in ("Warning", "Critical"):
        return "wet"
    return "ok" if detector == "OK" and state == "Enabled" else "unknown"


class LeakLatch:
    """Remembers each detector that was wet once: real leaks dried within a minute and were leaks."""

    def __init__(self) -> None:
        self.wet: dict[str, str] = {}

    def see(self, name: str, body: Mapping[str, Any]) -> str:
        """Return the detector's state, `wet` for good once it was."""
        state = leak_state(body)
        if state == "wet":
            self.wet.setdefault(name, str(body.get("DetectorState")))
        return "wet" if name in self.wet else state
