"""The numbers of each load: throughput, latency, errors, power and temperature; energy and cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackgate.nouns.slo import STAGES
from rackgate_reports.evidence import RunEvidence, mapping, number_of
from rackgate_reports.formatting import amount, as_shown, stage_name

FIVE_NUMBERS = {
    ("output_token_throughput", "value"): "Throughput",
    ("ttft_ms", "p99"): "P99 TTFT",
    ("error_rate", "value"): "Error rate",
    ("power_w", "value"): "Power",
    ("temperature_c", "value"): "Temperature",
}
"""Metric and statistic -> title of the five numbers, in their order."""

ECONOMY = {
    "energy_per_output_token_j": "Energy per token, cards",
    "rack_energy_per_output_token_j": "Energy per token, nodes",
    "energy_per_request_j": "Energy per request",
    "cost_per_million_output_tokens": "Cost per million tokens",
    "cost_per_1000_requests": "Cost per 1,000 requests",
}
"""Metric -> title of energy and cost, in their order."""

Records = Mapping[str, Mapping[str, Any]]
"""Measurement records by metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number as text. `note` says what it rests on, or why there is none; `known` is True of a value."""

    title: str
    text: str
    known: bool = False
    note: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbersRow:
    """The numbers of a load, or of a class of work over all its loads."""

    name: str
    detail: str
    cells: tuple[Cell, ...]


def five_numbers(run: RunEvidence) -> tuple[NumbersRow, ...]:
    """Return the five numbers of the rack by stage and load."""
    found: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for record in run.of("measurement"):
        if record.get("headline"):
            key = (str(record.get("stage")), str(record.get("load") or ""))
            found.setdefault(key, {})[str(record.get("metric"))] = record
    order = {stage: index for index, stage in enumerate(STAGES)}
    return tuple(
        NumbersRow(
            name=stage_name(stage),
            detail=load,
            cells=tuple(
                _headline_cell(records, metric, title) for (metric, _), title in FIVE_NUMBERS.items()
            ),
        )
        for (stage, load), records in sorted(found.items(), key=lambda item: order.get(item[0][0], 99))
    )


def _headline_cell(records: Records, metric: str, title: str) -> Cell:
    record = records.get(metric)
    if record is None:
        return Cell(title=title, text="not measured")
    unit = str(record.get("unit") or "")
    value, shown_unit = as_shown(metric, number_of(record.get("value")), unit)
    reason = str(record.get("reason") or "")
    if value is None:
        note = str(record.get("detail") or reason or "no reason recorded")
        return Cell(title=title, text="no value", note=note, reason=reason)
    note = _interval(metric, mapping(record.get("bounds")), unit)
    if math.isinf(value):
        note = "failed requests reach into this percentile"
    requests = number_of(records.get("request_throughput", {}).get("value"))
    if metric == "output_token_throughput" and requests is not None:
        note = f"{amount(requests, 'req/s')} · {amount(requests * 60, 'req/min')}"
    return Cell(title=title, text=amount(value, shown_unit), known=True, note=note)


def _interval(metric: str, bounds: Mapping[str, Any], unit: str) -> str:
    low, _ = as_shown(metric, number_of(bounds.get("lower")), unit)
    high, shown_unit = as_shown(metric, number_of(bounds.get("upper")), unit)
    return "" if low is None and high is None else f"{amount(low)} to {amount(high, shown_unit)}"


def economy(run: RunEvidence) -> tuple[NumbersRow, ...]:
    """Return a row for each load whose power was measured, then a row for each class of work."""
    found: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for record in _economy_records(run):
        stage, load, workload = (str(record.get(name) or "") for name in ("stage", "load", "workload"))
        found.setdefault((stage, load, workload), {})[str(record.get("metric"))] = record
    currency = str(mapping(run.target.get("prices")).get("currency") or "")
    return tuple(
        NumbersRow(
            name=f"{stage_name(stage)}, {load}" if load else "all loads of the class",
            detail=workload,
            cells=tuple(_economy_cell(records, metric, currency) for metric in ECONOMY),
        )
        for (stage, load, workload), records in sorted(found.items(), key=lambda item: not item[0][1])
    )


def _economy_cell(records: Records, metric: str, currency: str) -> Cell:
    title, record = ECONOMY[metric], records.get(metric)
    if record is None:
        return Cell(title=title, text="not measured")
    value = number_of(record.get("value"))
    if value is None:
        return Cell(
            title=title, text="no value", note=str(record.get("detail") or record.get("reason") or "")
        )
    unit = str(record.get("unit") or "")
    text = amount(value, currency if unit == "currency" else unit)
    count, source = f"n = {number_of(record.get('count')) or 0:,.0f}", str(record.get("source") or "")
    return Cell(title=title, text=text, known=True, note=f"{count}, {source}" if source else count)


def economy_definitions(run: RunEvidence) -> dict[str, str]:
    """Return metric -> definition of the energy and cost that have a value: of loads, then of classes."""
    known = [record for record in _economy_records(run) if record.get("value") is not None]
    known.sort(key=lambda record: not record.get("load"))
    return {str(record.get("metric")): str(record.get("definition") or "") for record in known}


def _economy_records(run: RunEvidence) -> list[Mapping[str, Any]]:
    return [record for record in run.of("measurement") if record.get("economy")]
