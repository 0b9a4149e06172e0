"""One value of one signal at one moment, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Node

_FAST_CARD_FIELDS = {
    "temperature_c": "°C",
    "temperature_margin_c": "°C",
    "memory_temperature_c": "°C",
    "power_w": "W",
    "power_instant_w": "W",
    "energy_j": "J",
    "sm_clock_mhz": "MHz",
    "memory_clock_mhz": "MHz",
    "clock_event_reasons": "bits",
    "utilisation_pct": "%",
    "memory_used_mib": "MiB",
    "performance_state": "state",
}

CARD_FIELDS = {
    **_FAST_CARD_FIELDS,
    "memory_utilisation_pct": "%",
    "memory_total_mib": "MiB",
    "power_limit_w": "W",
    "fan_pct": "%",
    "sw_power_cap_ns": "ns",
    "sync_boost_ns": "ns",
    "sw_thermal_slowdown_ns": "ns",
    "hw_thermal_slowdown_ns": "ns",
    "hw_power_brake_ns": "ns",
    "ecc_volatile_correctable": "errors",
    "ecc_volatile_uncorrectable": "errors",
    "ecc_aggregate_correctable": "errors",
    "ecc_aggregate_uncorrectable": "errors",
    "remapped_rows_correctable": "rows",
    "remapped_rows_uncorrectable": "rows",
    "row_remap_pending": "bool",
    "row_remap_failed": "bool",
    "pcie_generation": "generation",
    "pcie_generation_max": "generation",
    "pcie_width": "lanes",
    "pcie_width_max": "lanes",
    "pcie_replays": "errors",
    "nvlinks_up": "links",
    "nvlink_crc_errors": "errors",
    "nvlink_replays": "errors",
    "nvlink_recoveries": "errors",
    "nvlink_symbol_errors": "errors",
    "fabric_state": "state",
    "fabric_clique": "id",
    "recovery_action": "code",
    "mig_enabled": "bool",
    "last_xid": "code",
}
"""Our name of each signal of a card and its unit, whatever the source calls it.

`last_xid` is a gauge that stays: compare it with its value before the load, never with a bound.
`performance_state` is 0 for P0, the fastest, to 15.
`fabric_state` is NVML's: 0 not supported, 1 not started, 2 in progress, 3 completed.
"""

EVENT_FIELDS = {"xid": "code", "sxid": "code", "kernel_event": "kind"}
"""One reading for each event of the kernel log or of the driver, at the moment of the event.

`kernel_event` is any without a code of its own, by its number in `KERNEL_EVENTS`; its words are in `detail`.
"""

KERNEL_EVENTS = {
    "reboot": 1,
    "oom": 2,
    "aer": 3,
    "edac": 4,
    "mlx5": 5,
    "nvrm": 6,
    "nouveau": 7,
    "api_mismatch": 8,
    "driver_not_bound": 9,
    "probe_failed": 10,
    "no_adapter": 11,
    "lookalike": 12,
}
"""What else the kernel tells, by the number that stands in `telemetry.parquet`.

`lookalike` is what a program wrote into the log in the words of such an event.
"""

ENGINE_FIELDS = {
    "requests_running": "requests",
    "requests_waiting": "requests",
    "kv_cache_use": "ratio",
    "preemptions": "requests",
    "prefix_cache_queries": "tok",
    "prefix_cache_hits": "tok",
    "prompt_tokens": "tok",
    "generation_tokens": "tok",
    "requests_succeeded": "requests",
    "server_ttft_count": "requests",
    "server_ttft_sum_s": "s",
}
"""Signals of an engine; counters begin at zero with its process."""

CHASSIS_FIELDS = {
    "chassis_power_w": "W",
    "chassis_temperature_c": "°C",
    "power_supply_input_w": "W",
    "power_supplies_ok": "supplies",
    "power_supplies_bad": "supplies",
    "fan_rpm": "rpm",
    "fan_rpm_lowest": "rpm",
    "chassis_findings": "findings",
    "leak_detectors_ok": "detectors",
    "leak_detectors_wet": "detectors",
    "leak_detectors_unknown": "detectors",
}
"""Signals of a node's chassis, from its management controller."""

HOST_FIELDS = {
    "xid_watch": "bool",
    "xid_events": "bool",
    "cpu_pct": "%",
    "host_memory_available_mib": "MiB",
    "clock_offset_s": "s",
    "clock_to_ours_s": "s",
    "clock_to_ours_bound_s": "s",
    "network_errors": "errors",
    "network_links_down": "links",
    "infiniband_ports_active": "ports",
    "infiniband_ports_down": "ports",
    "infiniband_errors": "errors",
    "disk_free_mib": "MiB",
}
"""Signals of a node's operating system; `xid_watch` is 1 while its kernel log is read to its end.
`xid_events` is 1 while the driver tells XIDs as events.
"""

FIELDS = CARD_FIELDS | EVENT_FIELDS | ENGINE_FIELDS | CHASSIS_FIELDS | HOST_FIELDS
"""Every field and its unit."""

REQUIRED = ("temperature_c", "power_w", "sm_clock_mhz", "clock_event_reasons")
"""What an acceptance verdict cannot do without."""

FAST = frozenset({*_FAST_CARD_FIELDS, *EVENT_FIELDS, "requests_running", "requests_waiting", "kv_cache_use"})
"""Fields whose every sample is kept; the others are kept when they change, and now and then."""


class Reading(NamedTuple):
    """`t_ns` is CLOCK_MONOTONIC of this machine; exactly one of `value` and `reason` is None.

    A tuple, for some hundred are made a second and a frozen dataclass takes four times as long to make.
    """

    t_ns: int
    node: str
    entity: str
    field: str
    value: float | None
    reason: Reason | None = None
    detail: str = ""

    @property
    def unit(self) -> str:
        """The field's unit."""
        return FIELDS[self.field]


def kernel_event_kind(value: float) -> str:
    """Return which of `KERNEL_EVENTS` a reading is; raises `KeyError` for a number of none."""
    return _KIND_OF[int(value)]


_KIND_OF = {number: kind for kind, number in KERNEL_EVENTS.items()}


def missing_readings(
    node: Node, t_ns: int, reason: Reason, detail: str, fields: Iterable[str] = REQUIRED
) -> list[Reading]:
    """Return one reading without a value for each card of a node and each field."""
    chosen = tuple(fields)
    return [
        Reading(t_ns, node.name, card.name, field, None, reason, detail)
        for card in node.cards
        for field in chosen
    ]
