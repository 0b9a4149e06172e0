"""Our time to first token against the engine's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rackgate.loadgen.results.offered_load import OfferedLoad
from rackgate.metrics.metric import Register
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import chosen_samples
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.slo import ONE_VALUE, Slo
from rackgate.statistics.percentiles import nearest_rank
from rackgate.telemetry.engine_metrics import TtftHistogram

if TYPE_CHECKING:
    import numpy.typing as npt


_QUANTILES = {"P50": 0.5, "P95": 0.95}
_OTHERS = 0.1
"""So much of what the engine counted may be of others, or not be in the page yet."""


def server_ttft_difference_ms(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """How far TTFT P50 or P95 from sending lies outside its bucket in the engine's own histogram; 0 inside.

    Warm-up counts on both sides. Requests that only one side counted widen the bucket by as many ranks;
    where they are more than a tenth nothing is compared.
    """
    chosen = chosen_samples(observation, slo, entity)
    if chosen.table is None:
        return chosen.why or missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no samples")
    histogram = _histogram(chosen.looks, entity)
    if histogram is None:
        text = f"{entity} tells no histogram of its times to first token, or was started again meanwhile"
        return missing(slo.metric, entity, slo.unit, Reason.UNSUPPORTED, text)
    ours = _ours(chosen.looks, entity)
    apart = abs(histogram.count - len(ours))
    if not len(ours) or apart > _OTHERS * len(ours):
        text = f"{entity} counted {histogram.count:.0f} first tokens, this load had {len(ours)}"
        return missing(slo.metric, entity, slo.unit, Reason.UNSUPPORTED, f"{text}: others ask it too")
    outside, words = 0.0, []
    for name, quantile in _QUANTILES.items():
        value = nearest_rank(ours, quantile) or 0.0
        bounds = histogram.quantile_bounds_s(quantile, slack=apart)
        if bounds is not None:
            lower, upper = (1e3 * edge for edge in bounds)
            outside = max(outside, lower - value, value - upper)
            words.append(f"{name} {value:.1f} ms, the engine's own between {lower:g} and {upper:g} ms")
    return Measurement(
        metric=slo.metric,
        entity=entity,
        value=outside,
        unit=slo.unit,
        count=len(ours),
        detail="; ".join(words),
        source=f"load {slo.load}, and the engine's metrics page before and after it",
    )


def _histogram(looks: tuple[OfferedLoad, ...], entity: str) -> TtftHistogram | None:
    """Return what the engine counted in all looks together; None if one of them has nothing."""
    parts = [look.server_ttft.get(entity) for look in looks]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    total = known[0]
    for part in known[1:]:
        joined = total.plus(part)
        if joined is None:
            return None
        total = joined
    return total


def _ours(looks: tuple[OfferedLoad, ...], entity: str) -> npt.NDArray[np.float64]:
    tables = [look.samples for look in looks if look.samples is not None]
    values = [
        np.asarray(table.column("ttft_sent_ms"), dtype=float)[table.labels("engine").isin((entity,))]
        for table in tables
    ]
    together = np.concatenate(values) if values else np.zeros(0)
    return np.sort(together[~np.isnan(together)])


def register_metrics(register: Register) -> None:
    """Register the metric of this module."""
    register(
        "server_ttft_difference_ms",
        "ms",
        server_ttft_difference_ms,
        statistics=ONE_VALUE,
        windows=("load",),
        needs_load=True,
        inputs=("engine",),
        layer="network",
    )
