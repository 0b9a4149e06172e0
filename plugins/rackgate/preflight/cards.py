"""Card counters and states: readings of preflight as measurements by (metric, entity)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rackgate.nouns.measurement import Measurement, ProbeResults, Reason
from rackgate.preflight.host_metrics import measured, not_measured
from rackgate.telemetry.reading import Reading

_SAME_NAME = (
    *("recovery_action", "row_remap_pending", "row_remap_failed", "remapped_rows_uncorrectable"),
    *("ecc_volatile_uncorrectable", "ecc_aggregate_uncorrectable", "nvlinks_up"),
    *("power_supplies_bad", "chassis_findings", "clock_offset_s"),
)


def probe_readings(readings: Iterable[Reading], entities: Sequence[str]) -> ProbeResults:
    """Return the measurements of the latest readings of each entity; an unread field is absent."""
    latest = {(one.entity, one.field): one for one in readings}
    found: ProbeResults = {}
    for entity in entities:
        for name in _SAME_NAME:
            if (entity, name) in latest:
                found[name, entity] = _from(name, entity, latest[entity, name])
        used = latest.get((entity, "memory_used_mib"))
        if used is not None:
            found["memory_in_use_mib", entity] = _from("memory_in_use_mib", entity, used)
        wet, silent = (latest.get((entity, f"leak_detectors_{state}")) for state in ("wet", "unknown"))
        if wet is not None and silent is not None:
            found["leak_detectors_wet", entity] = _leaks(entity, wet, silent)
        width, best = latest.get((entity, "pcie_width")), latest.get((entity, "pcie_width_max"))
        if width is not None and best is not None:
            found["pcie_width_lost", entity] = _lost_lanes(entity, width, best)
    return found


def _from(name: str, entity: str, reading: Reading) -> Measurement:
    if reading.value is None:
        return not_measured(name, entity, reading.reason, reading.detail)
    return measured(name, entity, reading.value, reading.detail)


def _leaks(entity: str, wet: Reading, silent: Reading) -> Measurement:
    """Return the number of wet detectors; with a disabled detector zero is no value."""
    name = "leak_detectors_wet"
    if not wet.value and silent.value:
        text = f"{silent.value:g} leak detectors are not enabled or say nothing"
        return not_measured(name, entity, Reason.ABSENT, text)
    return _from(name, entity, wet)


def _lost_lanes(entity: str, width: Reading, best: Reading) -> Measurement:
    name = "pcie_width_lost"
    for one in (width, best):
        if one.value is None:
            return _from(name, entity, one)
    lost = (best.value or 0.0) - (width.value or 0.0)
    return measured(name, entity, lost, f"x{width.value:g} of x{best.value:g}")
