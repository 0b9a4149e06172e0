"""A percentile of one latency over a load's requests, with its bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import Chosen, chosen_samples, failed_mask
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.sample import Outcome
from rackgate.nouns.slo import Slo
from rackgate.statistics.looks import look_confidence
from rackgate.statistics.percentiles import nearest_rank, percentile_bounds, with_failures

if TYPE_CHECKING:
    import numpy.typing as npt


_LEAST_SHARE = 0.5
"""Of the ok requests at least this share must have the value: what most of them lack is not measured."""


def percentile_of(
    observation: Observation, slo: Slo, entity: str, column: str, chosen: Chosen | None = None
) -> Measurement:
    """Return a percentile of one column, failed requests counted as infinite, with its bounds."""
    chosen = chosen or chosen_samples(observation, slo, entity)
    if chosen.table is None:
        return chosen.why or missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no samples")
    values, ok_count, failed_count = _latencies_of(chosen.table, column)
    measured = values[: len(values) - failed_count]
    if len(measured) < _LEAST_SHARE * ok_count or not len(values):
        text = f"only {len(measured)} of {ok_count} ok requests have a {column}"
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, text)
    confidence = look_confidence(chosen.planned_looks)
    quantile = slo.quantile
    if quantile is None:
        value = float(values.max()) if slo.statistic == "max" else float(values.mean())
        bounds = None
    else:
        value = nearest_rank(values, quantile) or 0.0
        bounds = percentile_bounds(values, quantile, confidence)
    return Measurement(
        metric=slo.metric,
        entity=entity,
        value=value,
        unit=slo.unit,
        count=len(values),
        bounds=bounds,
        source=f"load {slo.load}",
        detail="; ".join(
            part for part in (_detail(measured, failed_count, quantile, slo.unit), chosen.remark) if part
        ),
    )


def _latencies_of(table: SampleTable, column: str) -> tuple[npt.NDArray[np.float64], int, int]:
    """Return the latencies in ascending order, failed requests last as infinite; the ok and the failed ones.

    An ok request may lack the latency (one token has no time per token): it is in the count alone.
    """
    return table.once(("latencies", column), lambda: _latencies(table, column))


def _latencies(table: SampleTable, column: str) -> tuple[npt.NDArray[np.float64], int, int]:
    ok = table.labels("outcome").isin((Outcome.OK,))
    measured = table.column(column)[ok]
    measured = measured[~np.isnan(measured)]
    measured.sort()
    failed_count = int(failed_mask(table).sum())
    return with_failures(measured, failed_count), int(ok.sum()), failed_count


def _detail(measured: npt.NDArray[np.float64], failed_count: int, quantile: float | None, unit: str) -> str:
    parts = []
    if failed_count:
        parts.append(f"{failed_count} failed requests count as infinite")
    if len(measured) and quantile is not None:
        alone = nearest_rank(measured, quantile)
        parts.append(f"over ok requests alone {alone:.1f} {unit}" if failed_count else "")
        parts.append(f"max {measured[-1]:.1f} {unit}")
    return "; ".join(part for part in parts if part)
