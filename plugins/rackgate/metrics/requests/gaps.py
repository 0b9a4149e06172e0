"""Gaps between the token-bearing chunks of an answer."""

from __future__ import annotations

import numpy as np

from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.metrics.metric import Register
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import chosen_samples
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.sample import Outcome
from rackgate.nouns.slo import OF_SAMPLES, Slo
from rackgate.statistics.log_histogram import LogHistogram
from rackgate.statistics.percentiles import nearest_rank

RELATIVE_ERROR = 0.01
_BURST_SHARE = 0.5


def chunk_gap_ms(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Gaps between token-bearing chunks of ok answers: inter-token latency only at one token per chunk.

    A log histogram with a relative error of at most 1 %, judged by its value alone: the gaps of one stream
    hang together, so that no bounds can be given. Chunks that came in one read have a gap of 0; answers that
    came in bursts are left out, and where they are most there is no value.
    """
    chosen = chosen_samples(observation, slo, entity)
    if chosen.table is None:
        return chosen.why or missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no samples")
    ok = chosen.table.where(chosen.table.labels("outcome").isin((Outcome.OK,)))
    bursts = np.asarray(ok.column("burst"), dtype=bool)
    if len(bursts) and bursts.mean() > _BURST_SHARE:
        text = f"{int(bursts.sum())} of {len(bursts)} streams arrived in one burst: a hop buffers them"
        return missing(slo.metric, entity, slo.unit, Reason.UNSUPPORTED, text)
    gaps = ok.once("chunk gaps", lambda: _gaps(ok.where(~bursts)))
    quantile = slo.quantile
    value = gaps.max if slo.statistic == "max" else gaps.total / max(1, gaps.count)
    if quantile is not None:
        value = gaps.quantile(quantile) or 0.0
    if not gaps.count:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no answer had two chunks")
    per_chunk = np.asarray(ok.column("tokens_per_chunk"), dtype=float)
    each = nearest_rank(per_chunk[~np.isnan(per_chunk)], 0.5)
    said = "" if each is None else f"{each:.3g} tokens per chunk (P50); "
    return Measurement(
        metric=slo.metric, entity=entity, value=float(value), unit=slo.unit, count=gaps.count,
        detail=f"{said}max {gaps.max:.1f} ms", source=f"load {slo.load}",
    )  # fmt: skip


def _gaps(table: SampleTable) -> LogHistogram:
    histogram = LogHistogram(RELATIVE_ERROR)
    for gaps_ms in table.chunk_gaps_ms():
        histogram.add(gaps_ms)
    return histogram


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    register("chunk_gap_ms", "ms", chunk_gap_ms, statistics=OF_SAMPLES, windows=("load",), needs_load=True)
