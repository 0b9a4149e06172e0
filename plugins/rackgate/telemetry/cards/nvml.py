"""NVML signals of a card as our fields; one call each, so that a refusal costs one field.

Imported only by the NVML process and by tests: a call into a sick driver may never return.
"""

from __future__ import annotations

from ctypes import byref
from functools import partial
from typing import Any

from pynvml import NVMLError

from rackgate.nouns.measurement import Reason
from rackgate.telemetry.cards.nvml_calls import REASONS, Asked, ask, attempt

_UNIFIED_WITHIN = 0.005
_UNKNOWN_STATE = 32  # NVML_PSTATE_UNKNOWN
_SLOWDOWN = 1  # NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
_LINKS = 18  # where the bindings do not say how many a card can have

# Fields that NVML answers in one call: our name, NVML's field id, factor.
_FIELD_IDS = {
    "memory_temperature_c": (82, 1.0),
    "energy_j": (83, 1e-3),
    "power_instant_w": (186, 1e-3),
    "sw_power_cap_ns": (74, 1.0),
    "sync_boost_ns": (76, 1.0),
    "sw_thermal_slowdown_ns": (269, 1.0),
    "hw_thermal_slowdown_ns": (270, 1.0),
    "hw_power_brake_ns": (271, 1.0),
    "nvlink_crc_errors": (38, 1.0),
    "nvlink_replays": (52, 1.0),
    "nvlink_recoveries": (59, 1.0),
    "nvlink_symbol_errors": (221, 1.0),
    "recovery_action": (230, 1.0),
}
_FAST_IDS = ("memory_temperature_c", "energy_j", "power_instant_w")
_VALUE_NAMES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def clock_event_reasons(nvml: Any, handle: Any) -> Asked:
    """Return the mask of clock event reasons: by the new name, else by the old, else unknown."""
    new = ask("clock event reasons", lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if new.code not in (3, 13):
        return new
    old = ask("clock throttle reasons", lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    return old if old.value is not None else new


def memory(nvml: Any, handle: Any, host_memory_bytes: int | None) -> tuple[Asked, Asked, bool]:
    """Return (used MiB, total MiB, unified): a card that shares the host's memory has none of its own."""
    info, refused = attempt("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    if refused is not None:
        unified = refused.code == 3
        detail = "unified memory: the card has none of its own" if unified else refused.detail
        nothing = Asked(None, refused.reason, detail, refused.code)
        return nothing, nothing, unified
    if host_memory_bytes and abs(info.total / host_memory_bytes - 1) <= _UNIFIED_WITHIN:
        text = f"unified memory: NVML's total of {info.total >> 20} MiB is the host's own"
        nothing = Asked(None, Reason.UNSUPPORTED, text, 3)
        return nothing, nothing, True
    return Asked(info.used / 2**20), Asked(info.total / 2**20), False


def fan_pct(nvml: Any, handle: Any) -> Asked:
    """Return the fan's speed in %; a passively cooled card has none."""
    return ask("fan", lambda: nvml.nvmlDeviceGetFanSpeed(handle))


def utilisation(nvml: Any, handle: Any) -> tuple[Asked, Asked]:
    """Return (compute %, memory %); with MIG on, utilisation belongs to the instances."""
    rates, refused = attempt("utilisation", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    if refused is None:
        return Asked(float(rates.gpu)), Asked(float(rates.memory))
    detail = "MIG is on: look at the instances" if mig_enabled(nvml, handle).value else refused.detail
    nothing = Asked(None, refused.reason, detail, refused.code)
    return nothing, nothing


def mig_enabled(nvml: Any, handle: Any) -> Asked:
    """Return 1 if the card is cut into instances, 0 if not; a card that cannot be refuses."""
    return ask("MIG mode", lambda: nvml.nvmlDeviceGetMigMode(handle)[0])


def card_signals(
    nvml: Any, handle: Any, *, slow: bool, brief: bool = False, host_memory_bytes: int | None = None
) -> dict[str, Asked]:
    """Return our fields of one card; with `slow` also those that seldom change.

    `brief` gives what a verdict needs at once and leaves out what moves by seconds or is a counter.
    """
    found = {
        "temperature_c": ask("temperature", lambda: _temperature(nvml, handle)),
        "power_w": ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle), 1e-3),
        "sm_clock_mhz": ask("SM clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, 1)),
        "clock_event_reasons": clock_event_reasons(nvml, handle),
    }
    if brief and not slow:
        return found
    compute, copy = utilisation(nvml, handle)
    used, total, _ = memory(nvml, handle, host_memory_bytes)
    found |= {
        "utilisation_pct": compute,
        "temperature_margin_c": _margin(nvml, handle, found["temperature_c"]),
        "memory_clock_mhz": ask("memory clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, 2)),
        "memory_used_mib": used,
        "performance_state": _performance_state(nvml, handle),
        **_field_values(nvml, handle, tuple(_FIELD_IDS) if slow else _FAST_IDS),
    }
    if found["energy_j"].value is None:
        found["energy_j"] = ask("energy", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle), 1e-3)
    if slow:
        found |= {
            "memory_total_mib": total,
            "memory_utilisation_pct": copy,
            "mig_enabled": mig_enabled(nvml, handle),
        }
        found |= _slow_signals(nvml, handle)
    return found


def _performance_state(nvml: Any, handle: Any) -> Asked:
    """Return 0 for P0, the fastest, to 15."""
    told = ask("performance state", lambda: nvml.nvmlDeviceGetPerformanceState(handle))
    if told.value != _UNKNOWN_STATE:
        return told
    return Asked(None, Reason.BLANK, "performance state: NVML does not know it")


def _temperature(nvml: Any, handle: Any) -> Any:
    """Ask by the new name, then by the old one, which newer drivers drop."""
    value, refused = attempt("temperature", lambda: nvml.nvmlDeviceGetTemperatureV(handle, 0))
    if refused is None or refused.code not in (3, 13, 25):
        return value if refused is None else refused
    return nvml.nvmlDeviceGetTemperature(handle, 0)


def _margin(nvml: Any, handle: Any, temperature: Asked) -> Asked:
    """Ask for the margin to slowdown; of an older driver's threshold the temperature is taken."""
    told = ask("margin", lambda: nvml.nvmlDeviceGetMarginTemperature(handle))
    if told.code not in (3, 13) or temperature.value is None:
        return told
    limit = ask("threshold", lambda: nvml.nvmlDeviceGetTemperatureThreshold(handle, _SLOWDOWN))
    return told if limit.value is None else Asked(limit.value - temperature.value)


def _slow_signals(nvml: Any, handle: Any) -> dict[str, Asked]:
    found = {
        "power_limit_w": ask("power limit", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle), 1e-3),
        "fan_pct": fan_pct(nvml, handle),
        "pcie_generation": ask("PCIe", lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
        "pcie_generation_max": ask("PCIe", lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        "pcie_width": ask("PCIe", lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
        "pcie_width_max": ask("PCIe", lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)),
        "pcie_replays": ask("PCIe replays", lambda: nvml.nvmlDeviceGetPcieReplayCounter(handle)),
        "nvlinks_up": ask("NVLink", lambda: _links_up(nvml, handle)),
    }
    for kind, kind_code in (("correctable", 0), ("uncorrectable", 1)):
        for counter, counter_code in (("volatile", 0), ("aggregate", 1)):
            found[f"ecc_{counter}_{kind}"] = ask(
                "ECC", partial(_ecc_errors, nvml, handle, kind_code, counter_code)
            )
    return found | _remapped(nvml, handle) | _fabric(nvml, handle)


def _ecc_errors(nvml: Any, handle: Any, kind: int, counter: int) -> Any:
    return nvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter)


def _links_up(nvml: Any, handle: Any) -> float:
    """Count the links that are active; a card with none gives NVML's refusal of the first."""
    active = float(nvml.nvmlDeviceGetNvLinkState(handle, 0))
    try:
        for link in range(1, getattr(nvml, "NVML_NVLINK_MAX_LINKS", _LINKS)):
            active += nvml.nvmlDeviceGetNvLinkState(handle, link)
    except NVMLError:  # the card has no more
        return active
    return active


def _remapped(nvml: Any, handle: Any) -> dict[str, Asked]:
    names = (
        *("remapped_rows_correctable", "remapped_rows_uncorrectable"),
        *("row_remap_pending", "row_remap_failed"),
    )
    rows, refused = attempt("remapped rows", lambda: nvml.nvmlDeviceGetRemappedRows(handle))
    return {name: refused or Asked(float(rows[place])) for place, name in enumerate(names)}


def _fabric(nvml: Any, handle: Any) -> dict[str, Asked]:
    info, refused = attempt("fabric", lambda: fabric_info(nvml, handle))
    if refused is not None:
        return {"fabric_state": refused, "fabric_clique": refused}
    return {"fabric_state": Asked(float(info.state)), "fabric_clique": Asked(float(info.cliqueId))}


def fabric_info(nvml: Any, handle: Any) -> Any:
    """Return NVML's structure of the fabric; raises NVMLError."""
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    info.version = nvml.nvmlGpuFabricInfo_v2
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, byref(info))
    return info


def _field_values(nvml: Any, handle: Any, names: tuple[str, ...]) -> dict[str, Asked]:
    wanted = [_FIELD_IDS[name][0] for name in names]
    answers, refused = attempt("field values", lambda: nvml.nvmlDeviceGetFieldValues(handle, wanted))
    if refused is not None:
        return dict.fromkeys(names, refused)
    return {name: _field(name, answer) for name, answer in zip(names, answers, strict=True)}


def _field(name: str, answer: Any) -> Asked:
    if answer.nvmlReturn:
        code = int(answer.nvmlReturn)
        detail = f"{name}: NVML answers {code} for field {answer.fieldId}"
        return Asked(None, REASONS.get(code, Reason.INSTRUMENT), detail, code)
    value = getattr(answer.value, _VALUE_NAMES[answer.valueType])
    return ask(name, lambda: value, _FIELD_IDS[name][1])
