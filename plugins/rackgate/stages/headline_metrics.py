"""Headline metrics of a stage, recorded beside its checks: throughput, latency, errors, power, heat."""

from __future__ import annotations

from dataclasses import asdict

from rackgate.metrics.metric import measure
from rackgate.metrics.observation import Observation
from rackgate.nouns.slo import Slo
from rackgate.run.run import Run

HEADLINE_METRICS = (
    ("output_token_throughput", "value"),
    ("ttft_ms", "p99"),
    ("error_rate", "value"),
    ("power_w", "value"),
    ("temperature_c", "value"),
    ("request_throughput", "value"),
)
"""(metric, statistic)."""


def record_headline_metrics(run: Run, observation: Observation) -> None:
    """Record the headline metrics of each load over everything that took part in it; an audit has none."""
    loads = (load_run.load for load_run in observation.load_runs if load_run.last.load.repeats == 1)
    for load in dict.fromkeys(loads):
        for metric, statistic in HEADLINE_METRICS:
            unit = run.registry.metrics[metric].unit
            row = Slo.unjudged(observation.stage, load, metric, statistic, unit)
            value = measure(run.registry.metrics, row, "rack", observation)
            run.record(
                "measurement",
                stage=observation.stage,
                load=load,
                statistic=statistic,
                definition=run.judging.definition(metric),
                headline=True,
                **asdict(value),
            )
