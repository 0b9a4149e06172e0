"""Metric names of AMD's device-metrics-exporter, mapped to ours with the unit factor.

Its metrics are lower case, in some versions with the prefix `amd_`. Signals without a counterpart are absent.
"""

from __future__ import annotations

from collections.abc import Mapping

AMD_NAMES = {
    "gpu_junction_temperature": ("temperature_c", 1.0),
    "gpu_edge_temperature": ("temperature_c", 1.0),
    "gpu_memory_temperature": ("memory_temperature_c", 1.0),
    "gpu_package_power": ("power_w", 1.0),
    "gpu_average_package_power": ("power_w", 1.0),
    "gpu_power_usage": ("power_w", 1.0),
    "gpu_energy_consumed": ("energy_j", 1e-6),
    "gpu_clock_system": ("sm_clock_mhz", 1.0),
    "gpu_clock_memory": ("memory_clock_mhz", 1.0),
    "gpu_gfx_activity": ("utilisation_pct", 1.0),
    "gpu_umc_activity": ("memory_utilisation_pct", 1.0),
    "gpu_used_vram": ("memory_used_mib", 1.0),
    "gpu_total_vram": ("memory_total_mib", 1.0),
    "gpu_ecc_correct_total": ("ecc_volatile_correctable", 1.0),
    "gpu_ecc_uncorrect_total": ("ecc_volatile_uncorrectable", 1.0),
    "pcie_replay_count": ("pcie_replays", 1.0),
}
"""(our field, factor) by AMD's name; ours = theirs x factor. The first that has a value counts."""

_MASKS = {
    "gpu_violation_processor_hot_residency_percentage": 0x40,
    "gpu_violation_socket_thermal_residency_percentage": 0x40,
    "gpu_violation_vr_thermal_residency_percentage": 0x40,
    "gpu_violation_hbm_thermal_residency_percentage": 0x40,
    "gpu_violation_ppt_residency_percentage": 0x4,
}
"""AMD's violations as the bit of NVML's clock events that says the same: heat, and the power limit."""

_IDLE, _IDLE_BELOW_PCT = 0x1, 1.0
_GENERATIONS = {2.5: 1.0, 5.0: 2.0, 8.0: 3.0, 16.0: 4.0, 32.0: 5.0, 64.0: 6.0}
_PREFIXES = ("gpu_", "pcie_")


def amd_name(name: str, labels: Mapping[str, str]) -> str | None:
    """Return the name under which a sample of AMD's is looked up; None if it is none of AMD's."""
    plain = name.lower().removeprefix("amd_")
    if not plain.startswith(_PREFIXES):
        return None
    if plain == "gpu_clock":
        kind = labels.get("clock_type", "").lower().removeprefix("gpu_clock_type_")
        return f"gpu_clock_{kind}"
    # The text format's parser takes `_total` for the mark of a counter.
    return f"{plain}_total" if plain in ("gpu_ecc_correct", "gpu_ecc_uncorrect") else plain


def clock_event_mask(values: Mapping[str, float]) -> float | None:
    """Return the clock events that a card's violations amount to; None if it tells none of them.

    A card whose engines are not used is idle: AMD has no such event, and idleness under load must show.
    """
    told = {name: values[name] for name in _MASKS if name in values}
    if not told:
        return None
    mask = 0
    for name, percentage in told.items():
        mask |= _MASKS[name] if percentage > 0 else 0
    if values.get("gpu_gfx_activity", 100.0) < _IDLE_BELOW_PCT:
        mask |= _IDLE
    return float(mask)


def pcie_generation(gigatransfers: float) -> float | None:
    """Return the PCIe generation of a speed in GT/s; None for a speed that none has."""
    return _GENERATIONS.get(gigatransfers)
