"""Redfish resources of a simulated node's management controller."""

from __future__ import annotations

from typing import Any

from rackgate.simulator.knobs import NodeKnobs

_HOST_W = 400.0
_LOSSES = 1.15  # of supplies and fans, as a factor of the cards' power

_ROOT = "/redfish/v1"
_TRAY = f"{_ROOT}/Chassis/Tray"
_LEAKS = f"{_TRAY}/ThermalSubsystem/LeakDetection/LeakDetectors"
_SUPPLIES = f"{_TRAY}/PowerSubsystem/PowerSupplies"


def _link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def _collection(*paths: str) -> dict[str, Any]:
    return {"Members": [_link(path) for path in paths], "Members@odata.count": len(paths)}


def chassis_resource(path: str, knobs: NodeKnobs, cards_w: float = 0.0) -> dict[str, Any] | None:
    """Return the resource of a path, None if there is none; `cards_w` is the power of the node's cards."""
    state = "Disabled" if knobs.leak == "disabled" else "Enabled"
    wet = "Critical" if knobs.leak == "wet" else "OK"
    tree: dict[str, dict[str, Any]] = {
        f"{_ROOT}/Chassis": _collection(_TRAY),
        _TRAY: {
            "Id": "Tray",
            "ThermalSubsystem": _link(f"{_TRAY}/ThermalSubsystem"),
            "PowerSubsystem": _link(f"{_TRAY}/PowerSubsystem"),
            "EnvironmentMetrics": _link(f"{_TRAY}/EnvironmentMetrics"),
            "Sensors": _link(f"{_TRAY}/Sensors"),
        },
        f"{_TRAY}/EnvironmentMetrics": {"PowerWatts": {"Reading": round(_HOST_W + _LOSSES * cards_w, 1)}},
        f"{_TRAY}/Sensors": _collection(f"{_TRAY}/Sensors/Inlet"),
        f"{_TRAY}/Sensors/Inlet": {
            "Name": "Inlet",
            "Reading": 24.5,
            "ReadingUnits": "Cel",
            "Status": {"State": "Enabled", "Health": "OK"},
            "Thresholds": {"UpperCritical": {"Reading": 45.0}},
        },
        f"{_TRAY}/ThermalSubsystem": {
            "LeakDetection": _link(f"{_TRAY}/ThermalSubsystem/LeakDetection"),
            "Fans": _link(f"{_TRAY}/ThermalSubsystem/Fans"),
        },
        f"{_TRAY}/ThermalSubsystem/Fans": _collection(f"{_TRAY}/ThermalSubsystem/Fans/0"),
        f"{_TRAY}/ThermalSubsystem/Fans/0": {
            "Name": "Fan 0",
            "SpeedPercent": {"Reading": 40, "SpeedRPM": 0 if knobs.fan_stopped else 9800},
            "Status": {"State": "Enabled", "Health": "OK"},
        },
        f"{_TRAY}/ThermalSubsystem/LeakDetection": {"LeakDetectors": _link(_LEAKS)},
        _LEAKS: _collection(f"{_LEAKS}/0"),
        f"{_LEAKS}/0": {"Id": "0", "DetectorState": wet, "Status": {"State": state, "Health": "OK"}},
        f"{_TRAY}/PowerSubsystem": {"PowerSupplies": _link(_SUPPLIES)},
        _SUPPLIES: _collection(f"{_SUPPLIES}/0"),
        f"{_SUPPLIES}/0": {
            "Name": "PSU 0",
            "Status": {"State": "Enabled", "Health": "Critical" if knobs.supply_broken else "OK"},
        },
        f"{_ROOT}/UpdateService/FirmwareInventory": _collection(
            f"{_ROOT}/UpdateService/FirmwareInventory/BMC"
        ),
        f"{_ROOT}/UpdateService/FirmwareInventory/BMC": {"Id": "BMC", "Version": "24.10-4"},
    }
    return tree.get(path)
