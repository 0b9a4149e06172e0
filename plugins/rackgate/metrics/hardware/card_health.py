"""Metrics of a card's health during a load: margin, limit, counters that grew, idleness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rackgate.metrics.hardware.load_window import measurement_of, no_telemetry, window_of
from rackgate.metrics.metric import MeasureFunction, Register
from rackgate.metrics.observation import Observation
from rackgate.nouns.measurement import Measurement, Reason
from rackgate.nouns.slo import ONE_VALUE, Slo
from rackgate.telemetry.card_checks import (
    THROTTLE_COUNTERS,
    idle_share,
    peak_share_of_limit,
    share_of_limit,
    slowest_state,
    standing_share,
    throttle_by_counters_s,
)
from rackgate.telemetry.series_findings import (
    Finding,
    growth,
    highest,
    highest_standing,
    least,
    most_per_minute,
)
from rackgate.telemetry.table import TelemetryTable

_CLOCKS_SETTING = 0x2


def _per_card(definition: str, look: Callable[[TelemetryTable, str, int, int], Finding]) -> MeasureFunction:
    def measured(observation: Observation, slo: Slo, entity: str) -> Measurement:
        window = window_of(observation, slo, entity)
        if isinstance(window, Measurement) or observation.telemetry is None:
            return window if isinstance(window, Measurement) else no_telemetry(slo, entity)
        return measurement_of(slo, entity, look(observation.telemetry, entity, *window))

    measured.__doc__ = definition
    return measured


def _grown(*fields: str) -> Callable[[TelemetryTable, str, int, int], Finding]:
    """Add the growth of counters; one that the card does not have is left out, unless it has none."""

    def look(table: TelemetryTable, card: str, start_ns: int, end_ns: int) -> Finding:
        found = {name: growth(table.series(card, name), start_ns, end_ns) for name in fields}
        known = {name: one for name, one in found.items() if one.value is not None}
        denied = [one for one in found.values() if one.reason is Reason.NO_PERMISSION]
        broken = denied + [one for one in found.values() if one.partial is not None]
        if broken:
            seen = sum(one.value or one.partial or 0.0 for one in found.values())
            return replace(broken[0], partial=seen)
        if not known:
            # A counter that was asked for and refused says more than one that nobody asked for.
            return min(found.values(), key=lambda one: one.reason is Reason.ABSENT)
        detail = ", ".join(f"{name} {one.detail}" for name, one in known.items() if one.value)
        total = sum(one.value or 0.0 for one in known.values())
        return Finding(value=total, count=min(one.count for one in known.values()), detail=detail)

    return look


def _least(field: str) -> Callable[[TelemetryTable, str, int, int], Finding]:
    return lambda table, card, start, end: least(table.series(card, field), start, end)


def _highest(field: str) -> Callable[[TelemetryTable, str, int, int], Finding]:
    return lambda table, card, start, end: highest(table.series(card, field), start, end)


def _idle(table: TelemetryTable, card: str, start_ns: int, end_ns: int) -> Finding:
    return idle_share(table.series(card, "clock_event_reasons"), start_ns, end_ns)


def _clocks_set(table: TelemetryTable, card: str, start_ns: int, end_ns: int) -> Finding:
    return standing_share(table.series(card, "clock_event_reasons"), start_ns, end_ns, _CLOCKS_SETTING)


def _performance_state(table: TelemetryTable, card: str, start_ns: int, end_ns: int) -> Finding:
    states, reasons = table.series(card, "performance_state"), table.series(card, "clock_event_reasons")
    return slowest_state(states, reasons, start_ns, end_ns)


def _remapped(table: TelemetryTable, card: str, start_ns: int, end_ns: int) -> Finding:
    """Add both kinds of rows; without the uncorrectable ones nothing is known."""
    worse = growth(table.series(card, "remapped_rows_uncorrectable"), start_ns, end_ns)
    if worse.value is None and worse.partial is None:
        return worse
    return _grown("remapped_rows_correctable", "remapped_rows_uncorrectable")(table, card, start_ns, end_ns)


def _power_peak(table: TelemetryTable, card: str, start_ns: int, end_ns: int) -> Finding:
    """Use the power of the moment where the card tells it, else the driver's mean of the last second."""
    limit = table.series(card, "power_limit_w")
    names = ("power_instant_w", "power_w")
    found = [peak_share_of_limit(table.series(card, name), limit, start_ns, end_ns) for name in names]
    return found[0] if found[0].value is not None or found[0].partial is not None else found[1]


def _power_share(table: TelemetryTable, card: str, start_ns: int, end_ns: int) -> Finding:
    power, limit = table.series(card, "power_w"), table.series(card, "power_limit_w")
    return share_of_limit(power, limit, start_ns, end_ns)


def _leaks(table: TelemetryTable, node: str, start_ns: int, end_ns: int) -> Finding:
    """Return how many detectors were wet, for good once they were; one that is not enabled might be."""
    wet = highest_standing(table.series(node, "leak_detectors_wet"), start_ns, end_ns)
    silent = highest_standing(table.series(node, "leak_detectors_unknown"), start_ns, end_ns)
    if not wet.value and silent.value:
        text = f"{silent.value:g} leak detectors are not enabled or say nothing"
        return Finding(value=None, reason=Reason.ABSENT, detail=text)
    return wet


def _pcie_lost(table: TelemetryTable, card: str, start_ns: int, end_ns: int) -> Finding:
    """Return how far generation and width were below the card's best, at the best moment of the load."""
    lost, words = 0.0, []
    for name in ("pcie_generation", "pcie_width"):
        now = highest_standing(table.series(card, name), start_ns, end_ns)
        best = highest_standing(table.series(card, f"{name}_max"), start_ns, end_ns)
        if now.value is None or best.value is None:
            return now if now.value is None else best
        lost += best.value - now.value
        words.append(f"{name.removeprefix('pcie_')} {now.value:g} of {best.value:g}")
    return Finding(value=lost, count=1, detail=", ".join(words))


_DEFINITIONS: dict[str, tuple[str, str, Callable[[TelemetryTable, str, int, int], Finding]]] = {
    "temperature_margin_c": (
        "°C",
        "Least distance to the slowdown temperature during the load.",
        _least("temperature_margin_c"),
    ),
    "memory_temperature_c": (
        "°C",
        "Highest temperature of the card's memory during the load.",
        _highest("memory_temperature_c"),
    ),
    "power_limit_share": ("ratio", "Mean power / enforced power limit during the load.", _power_share),
    "power_peak_share": (
        "ratio",
        "Highest sample of power / enforced power limit during the load.",
        _power_peak,
    ),
    "application_clocks_share": (
        "ratio",
        "Share of samples during the load in which set clocks hold the card back (clock event 0x2).",
        _clocks_set,
    ),
    "performance_state": (
        "state",
        "Slowest performance state of the samples in which the card is not idle: 0 is P0, the fastest.",
        _performance_state,
    ),
    "throttle_counters_s": (
        "s",
        "Time in thermal and power-brake clock events by the driver's counters.",
        throttle_by_counters_s,
    ),
    "idle_share": (
        "ratio",
        "Share of samples during the load in which the card says that it is idle.",
        _idle,
    ),
    "ecc_uncorrectable_growth": (
        "errors",
        "Uncorrectable memory errors that came during the load.",
        _grown("ecc_volatile_uncorrectable"),
    ),
    "remapped_rows_growth": (
        "rows",
        "Memory rows that were remapped during the load.",
        _remapped,
    ),
    "pcie_replays_per_min": (
        "1/min",
        "Most PCIe replays within any minute of the load; a shorter load counts as a minute.",
        lambda table, card, start, end: most_per_minute(table.series(card, "pcie_replays"), start, end),
    ),
    "pcie_replay_growth": ("errors", "PCIe replays that came during the load.", _grown("pcie_replays")),
    "nvlink_error_growth": (
        "errors",
        "NVLink CRC errors, replays, recoveries and symbol errors that came during the load.",
        _grown("nvlink_crc_errors", "nvlink_replays", "nvlink_recoveries", "nvlink_symbol_errors"),
    ),
    "infiniband_error_growth": (
        "errors",
        "Symbol errors, receive errors, recoveries and downed links of InfiniBand that came during the load.",
        _grown("infiniband_errors"),
    ),
    "leaks_seen": (
        "detectors",
        "Leak detectors that were wet at any moment of the load, where all of them are enabled.",
        _leaks,
    ),
    "pcie_lost": (
        "steps",
        "PCIe generations and lanes below the card's best, at its best moment of the load.",
        _pcie_lost,
    ),
}

_INPUTS: dict[str, tuple[str, ...]] = {
    "temperature_margin_c": ("card:temperature_margin_c",),
    "memory_temperature_c": ("card:memory_temperature_c",),
    "power_limit_share": ("card:power_w", "card:power_limit_w"),
    "throttle_counters_s": tuple(f"card:{name}" for name in THROTTLE_COUNTERS),
    "power_peak_share": ("card:power_instant_w|card:power_w", "card:power_limit_w"),
    "application_clocks_share": ("card:clock_event_reasons",),
    "performance_state": ("card:performance_state", "card:clock_event_reasons"),
    "idle_share": ("card:clock_event_reasons",),
    "ecc_uncorrectable_growth": ("card:ecc_volatile_uncorrectable",),
    "remapped_rows_growth": ("card:remapped_rows_uncorrectable",),
    "pcie_replays_per_min": ("card:pcie_replays",),
    "pcie_replay_growth": ("card:pcie_replays",),
    "nvlink_error_growth": (
        "card:nvlink_crc_errors|card:nvlink_replays|card:nvlink_recoveries|card:nvlink_symbol_errors",
    ),
    "pcie_lost": (
        *("card:pcie_generation", "card:pcie_generation_max"),
        *("card:pcie_width", "card:pcie_width_max"),
    ),
    "infiniband_error_growth": ("host:infiniband",),
    "leaks_seen": ("redfish:leak_detectors_wet", "redfish:leak_detectors_unknown"),
}


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    for name, (unit, definition, look) in _DEFINITIONS.items():
        _register(register, name, unit, _per_card(definition, look))


def _register(register: Register, name: str, unit: str, function: MeasureFunction) -> None:
    register(
        name,
        unit,
        function,
        statistics=ONE_VALUE,
        windows=("load",),
        needs_load=True,
        inputs=_INPUTS[name],
    )
