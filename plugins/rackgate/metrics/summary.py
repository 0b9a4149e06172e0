"""The numbers of one load to one endpoint, by the same metrics that an acceptance is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rackgate.metrics.metric import measure
from rackgate.metrics.requests import lag_p99_ms
from rackgate.metrics.shipped import register_metrics
from rackgate.observation import Observation, Offer
from rackgate.registry import Registry
from rackgate.slo import Op, Scope, Slo
from rackgate.target import EngineSpec, Target

if TYPE_CHECKING:
    from rackgate.loadgen import OfferedLoad
    from rackgate.measurement import Measurement

__all__ = ["FIVE", "LoadNumbers", "numbers_of"]

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
    """The five numbers, all other ones as (statistic, measurement), and the instrument's own error."""

    five: tuple[tuple[str, Measurement], ...]
    more: tuple[tuple[str, Measurement], ...]
    schedule_lag_p99_ms: float | None
    loop_lag_p99_ms: float | None
    lag_limit_ms: float

    @property
    def exact(self) -> bool:
        """True if the instrument was on time, so that the latencies are the endpoint's."""
        lags = (self.schedule_lag_p99_ms, self.loop_lag_p99_ms)
        return all(lag is None or lag <= self.lag_limit_ms for lag in lags)

    def value(self, metric: str, statistic: str = "value") -> Measurement:
        """Return one number. Raises `KeyError`."""
        found = {(one.metric, kind): one for kind, one in (*self.five, *self.more)}
        return found[metric, statistic]


def numbers_of(*offered: OfferedLoad, lag_limit_ms: float = 10.0) -> LoadNumbers:
    """Return the numbers of all looks of one load, at the entity `rack`: everything that was called."""
    registry = Registry()
    register_metrics(registry.add_metric)
    metrics = registry.metrics
    load = offered[0].load
    engines = tuple(
        EngineSpec(name=name, launcher="remote", model="") for name in offered[0].engines if name != "gateway"
    )
    observation = Observation(
        stage="load",
        target=Target(name="endpoint", model="", grade="cpu", engines=engines),
        offers=(Offer(load=load.name, label=offered[0].label, looks=offered),),
        lag_limit_ms=lag_limit_ms,
    )

    def one(metric: str, statistic: str) -> tuple[str, Measurement]:
        row = Slo(
            id=f"load.{metric}", stage="load", metric=metric, statistic=statistic, op=Op.AT_MOST, bound=0.0,
            unit=metrics[metric].unit, scope=Scope.RACK, source="", load=load.name,
        )  # fmt: skip
        return statistic, measure(metrics, row, "rack", observation)

    return LoadNumbers(
        five=tuple(one(*which) for which in FIVE),
        more=tuple(one(*which) for which in _MORE),
        schedule_lag_p99_ms=lag_p99_ms(offered),
        loop_lag_p99_ms=max((look.loop_lag_p99_ms or 0.0 for look in offered), default=None),
        lag_limit_ms=lag_limit_ms,
    )
