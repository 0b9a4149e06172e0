"""What loads and classes of work took and cost: energy of cards and of whole nodes, money."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rackgate_reports.evidence import number_of
from rackgate_reports.formatting import amount, escape, stage_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rackgate_reports.evidence import RunEvidence


COLUMNS = (
    ("energy_per_output_token_j", "Energy per token, cards"),
    ("rack_energy_per_output_token_j", "Energy per token, nodes"),
    ("energy_per_request_j", "Energy per request"),
    ("cost_per_million_output_tokens", "Cost per million tokens"),
    ("cost_per_1000_requests", "Cost per 1,000 requests"),
)
"""Metric and title, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EconomyRow:
    """One load of a stage, or with neither a whole class of work; the measurements by metric."""

    stage: str
    load: str
    workload: str
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What it is about."""
        return f"{stage_name(self.stage)}, {self.load}" if self.load else "all loads of the class"


def economy_of(run: RunEvidence) -> tuple[EconomyRow, ...]:
    """Return a row for each load whose power was measured, then one for each class of work."""
    found: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for record in run.of("measurement"):
        if record.get("economy"):
            key = tuple(str(record.get(name) or "") for name in ("stage", "load", "workload"))
            found.setdefault((key[0], key[1], key[2]), {})[str(record.get("metric"))] = record
    rows = [
        EconomyRow(stage=stage, load=load, workload=workload, values=values)
        for (stage, load, workload), values in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: not row.load))


def said_of(row: EconomyRow, metric: str, currency: str) -> tuple[str, str]:
    """Return a value as text and what it rests on, its samples and its source; or why there is none."""
    record = row.values.get(metric)
    value = None if record is None else number_of(record.get("value"))
    if record is None or value is None:
        why = "" if record is None else str(record.get("detail") or record.get("reason") or "")
        return "no value" if record is not None else "not measured", why
    unit = str(record.get("unit") or "")
    parts = [f"n = {number_of(record.get('count')) or 0:,.0f}", str(record.get("source") or "")]
    return amount(value, currency if unit == "currency" else unit), ", ".join(filter(None, parts))


def currency_of(run: RunEvidence) -> str:
    """Return what prices are in; empty where the target has none."""
    target = run.run.get("target")
    prices = target.get("prices") if isinstance(target, dict) else None
    return str(prices.get("currency") or "") if isinstance(prices, dict) else ""


def economy_table(run: RunEvidence, rows: Sequence[EconomyRow]) -> str:
    """Return the table; a word in its place where no power was measured."""
    if not rows:
        return '<p class="empty">No power was measured under a load: energy and cost are not known.</p>'
    currency = currency_of(run)
    heads = "".join(f'<th scope="col" class="num">{title}</th>' for _, title in COLUMNS)
    body = "".join(
        f'<tr><th scope="row">{escape(row.name, 120)}<small>{escape(row.workload, 60)}</small></th>'
        f"{''.join(_cell(row, metric, title, currency) for metric, title in COLUMNS)}</tr>"
        for row in rows
    )
    return (
        '<div class="scroll"><table class="numbers"><thead><tr><th scope="col">Load and class</th>'
        f"{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(row: EconomyRow, metric: str, title: str, currency: str) -> str:
    said, rests_on = said_of(row, metric, currency)
    known = number_of(row.values.get(metric, {}).get("value")) is not None
    value = f"<b>{escape(said)}</b>" if known else f'<span class="none">{escape(said)}</span>'
    note = f"<small>{escape(rests_on, 120)}</small>" if rests_on else ""
    return f'<td class="num" data-h="{title}">{value}{note}</td>'
