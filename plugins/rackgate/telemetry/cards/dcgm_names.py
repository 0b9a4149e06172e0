"""DCGM field names, mapped to ours with the unit factor."""

from __future__ import annotations

from rackgate.telemetry.reading import FIELDS

_BY_NAME = {
    "GPU_TEMP": ("temperature_c", 1.0),
    "GPU_TEMP_LIMIT": ("temperature_margin_c", 1.0),
    "MEMORY_TEMP": ("memory_temperature_c", 1.0),
    "POWER_USAGE": ("power_w", 1.0),
    "POWER_USAGE_INSTANT": ("power_instant_w", 1.0),
    "ENFORCED_POWER_LIMIT": ("power_limit_w", 1.0),
    "POWER_MGMT_LIMIT": ("power_limit_w", 1.0),
    "TOTAL_ENERGY_CONSUMPTION": ("energy_j", 1e-3),
    "GPU_ENERGY_JOULES": ("energy_j", 1.0),
    "SM_CLOCK": ("sm_clock_mhz", 1.0),
    "SM_CLOCK_HERTZ": ("sm_clock_mhz", 1e-6),
    "MEM_CLOCK": ("memory_clock_mhz", 1.0),
    "MEMORY_CLOCK_HERTZ": ("memory_clock_mhz", 1e-6),
    "CLOCKS_EVENT_REASONS": ("clock_event_reasons", 1.0),
    "CLOCK_THROTTLE_REASONS": ("clock_event_reasons", 1.0),
    "CLOCKS_EVENT_REASON_SW_POWER_CAP_NS": ("sw_power_cap_ns", 1.0),
    "CLOCKS_EVENT_REASON_SYNC_BOOST_NS": ("sync_boost_ns", 1.0),
    "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS": ("sw_thermal_slowdown_ns", 1.0),
    "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": ("hw_thermal_slowdown_ns", 1.0),
    "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS": ("hw_power_brake_ns", 1.0),
    "PSTATE": ("performance_state", 1.0),
    "GPU_UTIL": ("utilisation_pct", 1.0),
    "MEM_COPY_UTIL": ("memory_utilisation_pct", 1.0),
    "FB_USED": ("memory_used_mib", 1.0),
    "FB_TOTAL": ("memory_total_mib", 1.0),
    "FAN_SPEED": ("fan_pct", 1.0),
    "ECC_SBE_VOL_TOTAL": ("ecc_volatile_correctable", 1.0),
    "ECC_DBE_VOL_TOTAL": ("ecc_volatile_uncorrectable", 1.0),
    "ECC_SBE_AGG_TOTAL": ("ecc_aggregate_correctable", 1.0),
    "ECC_DBE_AGG_TOTAL": ("ecc_aggregate_uncorrectable", 1.0),
    "CORRECTABLE_REMAPPED_ROWS": ("remapped_rows_correctable", 1.0),
    "UNCORRECTABLE_REMAPPED_ROWS": ("remapped_rows_uncorrectable", 1.0),
    "ROW_REMAP_PENDING": ("row_remap_pending", 1.0),
    "ROW_REMAP_FAILURE": ("row_remap_failed", 1.0),
    "PCIE_LINK_GEN": ("pcie_generation", 1.0),
    "PCIE_MAX_LINK_GEN": ("pcie_generation_max", 1.0),
    "PCIE_LINK_WIDTH": ("pcie_width", 1.0),
    "PCIE_MAX_LINK_WIDTH": ("pcie_width_max", 1.0),
    "PCIE_REPLAY_COUNTER": ("pcie_replays", 1.0),
    "NVLINK_CRC_FLIT_ERROR_COUNT": ("nvlink_crc_errors", 1.0),
    "NVLINK_REPLAY_ERROR_COUNT": ("nvlink_replays", 1.0),
    "NVLINK_RECOVERY_ERROR_COUNT": ("nvlink_recoveries", 1.0),
    "NVLINK_COUNT_RX_SYMBOL_ERRORS": ("nvlink_symbol_errors", 1.0),
    "FABRIC_CLIQUE_ID": ("fabric_clique", 1.0),
    "GET_GPU_RECOVERY_ACTION": ("recovery_action", 1.0),
    "MIG_MODE": ("mig_enabled", 1.0),
    "XID_ERRORS": ("last_xid", 1.0),
}

# DCGM 4.6 renames macros; the old and the new spelling of a field are one signal. `_TOTAL` is cut from
# every name before it is looked up: the text format adds it to counters, and DCGM itself to sums.
# GPU_UTIL_RATIO is left out: one release calls the percentage so, the next another field of 0 to 1.
_RENAMED = {
    "GPU_TEMP_CELSIUS": "GPU_TEMP",
    "GPU_TEMP_MARGIN_CELSIUS": "GPU_TEMP_LIMIT",
    "MEMORY_TEMP_CELSIUS": "MEMORY_TEMP",
    "BOARD_POWER_WATTS": "POWER_USAGE",
    "BOARD_POWER_RAW_WATTS": "POWER_USAGE_INSTANT",
    "BOARD_POWER_LIMIT_ENFORCED_WATTS": "ENFORCED_POWER_LIMIT",
    "BOARD_POWER_LIMIT_REQUESTED_WATTS": "POWER_MGMT_LIMIT",
    "PCIE_REPLAY": "PCIE_REPLAY_COUNTER",
    "ROW_REMAP_CORRECTABLE": "CORRECTABLE_REMAPPED_ROWS",
    "ROW_REMAP_UNCORRECTABLE": "UNCORRECTABLE_REMAPPED_ROWS",
    "ROW_REMAP_FAILED": "ROW_REMAP_FAILURE",
    "NVLINK_CRC_FLIT_ERROR": "NVLINK_CRC_FLIT_ERROR_COUNT",
    "NVLINK_REPLAY_ERROR": "NVLINK_REPLAY_ERROR_COUNT",
    "NVLINK_RECOVERY_ERROR": "NVLINK_RECOVERY_ERROR_COUNT",
    "NVLINK_RX_SYMBOL_ERROR": "NVLINK_COUNT_RX_SYMBOL_ERRORS",
    "GPU_RECOVERY_ACTION": "GET_GPU_RECOVERY_ACTION",
    "XID_ERROR": "XID_ERRORS",
}


def _prefixed(name: str) -> str:
    return "DCGM_FI_DEV_" + name.removesuffix("_TOTAL")


NAMES = {_prefixed(name): known for name, known in _BY_NAME.items()} | {
    _prefixed(new): _BY_NAME[old] for new, old in _RENAMED.items()
}
"""(our field, factor) by the exporter's name without `_TOTAL` or `_total`; ours = theirs x factor."""

_SUMMED = ("NVLINK_CRC_FLIT_ERROR_COUNT", "NVLINK_REPLAY_ERROR_COUNT", "NVLINK_RECOVERY_ERROR_COUNT")
_GROWING = ("errors", "rows", "J", "ns")


def counter_line(field: str) -> str | None:
    """Return the line of dcgm-exporter's counter list that gives one of our fields; None if DCGM has none."""
    name = next((name for name, (known, _) in _BY_NAME.items() if known == field), None)
    if name is None:
        return None
    macro = f"DCGM_FI_DEV_{name}{'_TOTAL' if name in _SUMMED else ''}"
    kind = "counter" if FIELDS[field] in _GROWING else "gauge"
    return f"{macro}, {kind}, {field.replace('_', ' ')}"
