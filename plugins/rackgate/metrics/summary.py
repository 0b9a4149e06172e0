"""The numbers of one load to one endpoint, by the same metrics that an acceptance is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rackgate.loadgen.instrument.reference import InstrumentError
from rackgate.loadgen.results.offered_load import OfferedLoad
from rackgate.metrics.metric import measure
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.metrics.requests.chosen import lag_p99_ms
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.measurement import Measurement
from rackgate.nouns.slo import Slo
from rackgate.nouns.target import GATEWAY, EngineSpec, Target
from rackgate.statistics.percentiles import nearest_rank

FIVE = (
    ("ttft_ms", "p99"),
    ("output_token_throughput", "value"),
    ("error_rate", "value"),
    ("power_w", "value"),
    ("temperature_c", "value"),
)
"""The five numbers of a report."""

_MORE = (
    *(("ttft_ms", statistic) for statistic in ("p50", "p90", "p95", "p99", "p999", "max")),
    *(("tpot_ms", statistic) for statistic in ("p50", "p95", "p99")),
    *(("e2e_ms", statistic) for statistic in ("p50", "p95", "p99")),
    *((name, "value") for name in ("request_throughput", "offered_share", "goodput", "goodput_per_s")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadNumbers:
    """The five numbers, all other ones as (statistic, measurement), and the instrument's own error.

    `error_p99_ms` is the P99 of |reported - true| TTFT against the reference server; None, with
    `error_detail`, where it was not measured.
    """

    five: tuple[tuple[str, Measurement], ...]
    more: tuple[tuple[str, Measurement], ...]
    schedule_lag_p99_ms: float | None
    loop_lag_p99_ms: float | None
    lag_limit_ms: float
    error_p99_ms: float | None = None
    error_detail: str = "not measured"

    @property
    def exact(self) -> bool:
        """True if the instrument was on time, so that the latencies are the endpoint's."""
        lags = (self.schedule_lag_p99_ms, self.loop_lag_p99_ms, self.error_p99_ms)
        return all(lag is None or lag <= self.lag_limit_ms for lag in lags)

    def value(self, metric: str, statistic: str = "value") -> Measurement:
        """Return one number. Raises `KeyError`."""
        found = {(one.metric, kind): one for kind, one in (*self.five, *self.more)}
        return found[metric, statistic]


def numbers_of(
    *offered: OfferedLoad, lag_limit_ms: float = 10.0, instrument: InstrumentError | None = None
) -> LoadNumbers:
    """Return the numbers of all looks of one load, at the entity `rack`: everything that was called.

    `instrument` is the load generator's own error at such a load.
    """
    registry = shipped_registry()
    metrics = registry.metrics
    load = offered[0].load
    engines = tuple(
        EngineSpec(name=name, launcher="remote", model="") for name in offered[0].engines if name != GATEWAY
    )
    observation = Observation(
        stage="load",
        target=Target(name="endpoint", model="", grade="cpu", engines=engines),
        load_runs=(LoadRun(load=load.name, label=offered[0].label, looks=offered),),
        lag_limit_ms=lag_limit_ms,
    )

    def one(metric: str, statistic: str) -> tuple[str, Measurement]:
        row = Slo.unjudged("load", load.name, metric, statistic, metrics[metric].unit)
        return statistic, measure(metrics, row, "rack", observation)

    return LoadNumbers(
        five=tuple(one(*which) for which in FIVE),
        more=tuple(one(*which) for which in _MORE),
        schedule_lag_p99_ms=lag_p99_ms(offered),
        loop_lag_p99_ms=max((look.loop_lag_p99_ms or 0.0 for look in offered), default=None),
        lag_limit_ms=lag_limit_ms,
        **_error_fields(instrument),
    )


def _error_fields(instrument: InstrumentError | None) -> dict[str, Any]:
    error_ms, detail = error_p99(instrument)
    return {"error_p99_ms": error_ms, "error_detail": detail}


def error_p99(instrument: InstrumentError | None) -> tuple[float | None, str]:
    """Return the P99 of |reported - true| TTFT in ms, None if not measured; and by what, or why not."""
    if instrument is None:
        return None, "not measured"
    error_ms = nearest_rank(abs(instrument.errors_ms), 0.99) if instrument.count else None
    reference = instrument.offered
    if error_ms is None or reference is None:
        return None, f"not measured: {instrument.detail}"
    text = f"{instrument.count} requests to a reference server, {reference.peak_in_flight} at once"
    return error_ms, text
