"""What each load took and cost, and each class of work over all its loads, where power was measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from rackgate.metrics.metric import measure
from rackgate.metrics.observation import Observation
from rackgate.nouns.measurement import Measurement
from rackgate.nouns.slo import Op, Scope, Slo

if TYPE_CHECKING:
    from rackgate.run.run import Run

TOKENS, REQUESTS = "output_token_throughput", "request_throughput"

ECONOMY = {
    "energy_per_output_token_j": TOKENS,
    "rack_energy_per_output_token_j": TOKENS,
    "energy_per_request_j": REQUESTS,
    "cost_per_million_output_tokens": TOKENS,
    "cost_per_1000_requests": REQUESTS,
}
"""Each metric with the throughput of what it is per."""

POWERS = ("power_w", "rack_power_w")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """What one load adds to its class: what was measured per unit of work, and how many units there were."""

    load: str
    measured: Measurement
    units: float


class Economies:
    """What the loads of a run took, by class of work and metric."""

    def __init__(self) -> None:
        self._shares: dict[tuple[str, str], list[_Share]] = {}

    def add(self, workload: str, load: str, measured: Measurement, units: float) -> None:
        """Take a load's measurement, and of how much work it is."""
        share = _Share(load=load, measured=measured, units=units)
        self._shares.setdefault((workload, measured.metric), []).append(share)

    def classes(self) -> list[tuple[str, Measurement]]:
        """Return (class, measurement) over all its loads: the sum of what was taken / the work done."""
        found = []
        for (workload, _), shares in self._shares.items():
            units = sum(share.units for share in shares)
            taken = sum((share.measured.value or 0.0) * share.units for share in shares)
            names = ", ".join(dict.fromkeys(share.load for share in shares))
            sources = ", ".join(dict.fromkeys(share.measured.source for share in shares))
            measured = replace(
                shares[0].measured,
                value=taken / units,
                count=sum(share.measured.count for share in shares),
                detail=f"class {workload}: {names}",
                source=sources,
            )
            found.append((workload, measured))
        return found


def record_economy(run: Run, observation: Observation) -> None:
    """Record what each load of a stage took and cost, where the power of cards or nodes has a value."""
    for load in dict.fromkeys(offer.load for offer in observation.offers):
        if all(_measured(run, observation, name, load).value is None for name in POWERS):
            continue
        look = observation.offers_of(load)[-1].last
        workload = look.load.workload
        seconds = (look.steady_end_ns - look.steady_start_ns) / 1e9
        rates = {name: _measured(run, observation, name, load).value or 0.0 for name in (TOKENS, REQUESTS)}
        for name, work in ECONOMY.items():
            found = _measured(run, observation, name, load)
            _record(run, observation.stage, load, workload, found)
            if found.value is not None and rates[work] * seconds > 0:
                run.economies.add(workload, f"{observation.stage}/{load}", found, rates[work] * seconds)


def record_classes(run: Run) -> None:
    """Record what each class of work took over all its loads."""
    for workload, measured in run.economies.classes():
        _record(run, "", "", workload, measured)


def _measured(run: Run, observation: Observation, metric: str, load: str) -> Measurement:
    row = Slo(
        id=f"{observation.stage}.{metric}", stage=observation.stage, metric=metric, statistic="value",
        op=Op.AT_MOST, bound=0.0, unit=run.registry.metrics[metric].unit, scope=Scope.RACK, source="",
        load=load,
    )  # fmt: skip
    return measure(run.registry.metrics, row, "rack", observation)


def _record(run: Run, stage: str, load: str, workload: str, measured: Measurement) -> None:
    run.record(
        "measurement",
        stage=stage,
        load=load,
        workload=workload,
        statistic="value",
        definition=run.definition(measured.metric),
        headline=False,
        economy=True,
        **asdict(measured),
    )
