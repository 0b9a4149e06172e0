"""Metrics of a card's health during a load: margin, limit, counters that grew, idleness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
from rackgate.telemetry.table import TelemetryTable
from rackgate.telemetry.window_findings import (
    Finding,
    growth,
    highest,
    highest_standing,
    least,
    most_per_minute,
)

_CLOCKS_SETTING = 0x2

Look = Callable[[TelemetryTable, str, int, int], Finding]
"""A finding on one card or node between two moments (ns)."""


def _per_card(definition: str, look: Look) -> MeasureFunction:
    def measured(observation: Observation, slo: Slo, entity: str) -> Measurement:
        window = window_of(observation, slo, entity)
        if isinstance(window, Measurement) or observation.telemetry is None:
            return window if isinstance(window, Measurement) else no_telemetry(slo, entity)
        return measurement_of(slo, entity, look(observation.telemetry, entity, *window))

    measured.__doc__ = definition
    return measured


def _grown(*fields: str) -> Look:
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


def _least(field: str) -> Look:
    return lambda table, card, start, end: least(table.series(card, field), start, end)


def _highest(field: str) -> Look:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _CardMetric:
    name: str
    unit: str
    definition: str
    look: Look
    inputs: tuple[str, ...]
    vendor: str = ""
    layer: str = ""


_METRICS = (
    _CardMetric(
        name="temperature_margin_c",
        unit="°C",
        definition="Least distance to the slowdown temperature during the load.",
        look=_least("temperature_margin_c"),
        inputs=("card:temperature_margin_c",),
        vendor="nvidia",
    ),
    _CardMetric(
        name="memory_temperature_c",
        unit="°C",
        definition="Highest temperature of the card's memory during the load.",
        look=_highest("memory_temperature_c"),
        inputs=("card:memory_temperature_c",),
    ),
    _CardMetric(
        name="power_limit_share",
        unit="ratio",
        definition="Mean power / enforced power limit during the load.",
        look=_power_share,
        inputs=("card:power_w", "card:power_limit_w"),
        vendor="nvidia",
    ),
    _CardMetric(
        name="power_peak_share",
        unit="ratio",
        definition="Highest sample of power / enforced power limit during the load.",
        look=_power_peak,
        inputs=("card:power_instant_w|card:power_w", "card:power_limit_w"),
        vendor="nvidia",
    ),
    _CardMetric(
        name="application_clocks_share",
        unit="ratio",
        definition="Share of samples during the load in which set clocks hold the card back"
        " (clock event 0x2).",
        look=_clocks_set,
        inputs=("card:clock_event_reasons",),
        vendor="nvidia",
    ),
    _CardMetric(
        name="performance_state",
        unit="state",
        definition="Slowest performance state of the samples in which the card is not idle:"
        " 0 is P0, the fastest.",
        look=_performance_state,
        inputs=("card:performance_state", "card:clock_event_reasons"),
        vendor="nvidia",
    ),
    _CardMetric(
        name="throttle_counters_s",
        unit="s",
        definition="Time in thermal and power-brake clock events by the driver's counters.",
        look=throttle_by_counters_s,
        inputs=tuple(f"card:{name}" for name in THROTTLE_COUNTERS),
        vendor="nvidia",
    ),
    _CardMetric(
        name="idle_share",
        unit="ratio",
        definition="Share of samples during the load in which the card says that it is idle.",
        look=_idle,
        inputs=("card:clock_event_reasons",),
    ),
    _CardMetric(
        name="ecc_uncorrectable_growth",
        unit="errors",
        definition="Uncorrectable memory errors that came during the load.",
        look=_grown("ecc_volatile_uncorrectable"),
        inputs=("card:ecc_volatile_uncorrectable",),
    ),
    _CardMetric(
        name="remapped_rows_growth",
        unit="rows",
        definition="Memory rows that were remapped during the load.",
        look=_remapped,
        inputs=("card:remapped_rows_uncorrectable",),
        vendor="nvidia",
    ),
    _CardMetric(
        name="pcie_replays_per_min",
        unit="1/min",
        definition="Most PCIe replays within any minute of the load; a shorter load counts as a minute.",
        look=lambda table, card, start, end: most_per_minute(table.series(card, "pcie_replays"), start, end),
        inputs=("card:pcie_replays",),
    ),
    _CardMetric(
        name="pcie_replay_growth",
        unit="errors",
        definition="PCIe replays that came during the load.",
        look=_grown("pcie_replays"),
        inputs=("card:pcie_replays",),
    ),
    _CardMetric(
        name="nvlink_error_growth",
        unit="errors",
        definition="NVLink CRC errors, replays, recoveries and symbol errors that came during the load.",
        look=_grown("nvlink_crc_errors", "nvlink_replays", "nvlink_recoveries", "nvlink_symbol_errors"),
        inputs=(
            "card:nvlink_crc_errors|card:nvlink_replays|card:nvlink_recoveries|card:nvlink_symbol_errors",
        ),
        vendor="nvidia",
    ),
    _CardMetric(
        name="infiniband_error_growth",
        unit="errors",
        definition="Symbol errors, receive errors, recoveries and downed links of InfiniBand"
        " that came during the load.",
        look=_grown("infiniband_errors"),
        inputs=("host:infiniband",),
        layer="network",
    ),
    _CardMetric(
        name="leaks_seen",
        unit="detectors",
        definition="Leak detectors that were wet at any moment of the load, where all of them are enabled.",
        look=_leaks,
        inputs=("redfish:leak_detectors_wet", "redfish:leak_detectors_unknown"),
    ),
    _CardMetric(
        name="pcie_lost",
        unit="steps",
        definition="PCIe generations and lanes below the card's best, at its best moment of the load.",
        look=_pcie_lost,
        inputs=(
            *("card:pcie_generation", "card:pcie_generation_max"),
            *("card:pcie_width", "card:pcie_width_max"),
        ),
        vendor="nvidia",
    ),
)


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    for metric in _METRICS:
        register(
            metric.name,
            metric.unit,
            _per_card(metric.definition, metric.look),
            statistics=ONE_VALUE,
            windows=("load",),
            needs_load=True,
            inputs=metric.inputs,
            vendor=metric.vendor,
            layer=metric.layer,
        )
