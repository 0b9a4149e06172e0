"""Energy and cost of each load, and of each class of work over all its loads, recorded beside the checks."""

from __future__ import annotations

from dataclasses import asdict

from rackgate.metrics.metric import measure
from rackgate.metrics.observation import Observation
from rackgate.nouns.measurement import Measurement
from rackgate.nouns.slo import Slo
from rackgate.run.run import Run

TOKENS, REQUESTS = "output_token_throughput", "request_throughput"

ECONOMY = {
    "energy_per_output_token_j": TOKENS,
    "rack_energy_per_output_token_j": TOKENS,
    "energy_per_request_j": REQUESTS,
    "cost_per_million_output_tokens": TOKENS,
    "cost_per_1000_requests": REQUESTS,
}
"""Each metric and the throughput of its denominator."""

POWERS = ("power_w", "rack_power_w")


def record_economy(run: Run, observation: Observation) -> None:
    """Record the energy and cost of each load of a stage, where the power of cards or nodes is known."""
    for load in dict.fromkeys(offer.load for offer in observation.load_runs):
        if all(_measured(run, observation, name, load).value is None for name in POWERS):
            continue
        look = observation.load_runs_of(load)[-1].last
        workload = look.load.workload
        seconds = (look.steady_end_ns - look.steady_start_ns) / 1e9
        rates = {name: _measured(run, observation, name, load).value or 0.0 for name in (TOKENS, REQUESTS)}
        for name, work in ECONOMY.items():
            found = _measured(run, observation, name, load)
            _record(run, observation.stage, load, workload, found)
            if found.value is not None and rates[work] * seconds > 0:
                run.economies.add(workload, f"{observation.stage}/{load}", found, rates[work] * seconds)


def record_classes(run: Run) -> None:
    """Record the energy and cost of each class of work over all its loads."""
    for workload, measured in run.economies.classes():
        _record(run, "", "", workload, measured)


def _measured(run: Run, observation: Observation, metric: str, load: str) -> Measurement:
    unit = run.registry.metrics[metric].unit
    row = Slo.unjudged(observation.stage, load, metric, "value", unit)
    return measure(run.registry.metrics, row, "rack", observation)


def _record(run: Run, stage: str, load: str, workload: str, measured: Measurement) -> None:
    run.record(
        "measurement",
        stage=stage,
        load=load,
        workload=workload,
        statistic="value",
        definition=run.judging.definition(measured.metric),
        headline=False,
        economy=True,
        **asdict(measured),
    )
