"""The numbers that head every stage: throughput, latency, errors, power and temperature."""

from __future__ import annotations

from dataclasses import asdict

from rackgate.metrics.metric import measure
from rackgate.metrics.observation import Observation
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.run.run import Run

FIVE_NUMBERS = (
    ("output_token_throughput", "value"),
    ("ttft_ms", "p99"),
    ("error_rate", "value"),
    ("power_w", "value"),
    ("temperature_c", "value"),
    ("request_throughput", "value"),
)
"""Throughput, P99, error rate, power, temperature: (metric, statistic). Throughput is in requests too."""


def record_five_numbers(run: Run, observation: Observation) -> None:
    """Record the five numbers of a stage over everything that took part in it; an audit has none."""
    loads = (offer.load for offer in observation.offers if offer.last.load.repeats == 1)
    for load in dict.fromkeys(loads):
        for metric, statistic in FIVE_NUMBERS:
            row = Slo(
                id=f"{observation.stage}.{metric}",
                stage=observation.stage,
                metric=metric,
                statistic=statistic,
                op=Op.AT_MOST,
                bound=0.0,
                unit=run.registry.metrics[metric].unit,
                scope=Scope.RACK,
                source="",
                load=load,
            )
            value = measure(run.registry.metrics, row, "rack", observation)
            run.record(
                "measurement",
                stage=observation.stage,
                load=load,
                statistic=statistic,
                definition=run.definition(metric),
                headline=True,
                **asdict(value),
            )
