"""The bits of `clock_event_reasons` and their names."""

from __future__ import annotations

CLOCK_EVENTS = {
    0x1: "gpu_idle",
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
"""The bits of `clock_event_reasons`."""

FAULT_BITS = 0xE8
"""Clock events that are faults: heat, hardware and power brake."""


def clock_event_names(mask: int) -> tuple[str, ...]:
    """Return the name of each bit that is set, the lowest first."""
    return tuple(name for bit, name in CLOCK_EVENTS.items() if mask & bit)
