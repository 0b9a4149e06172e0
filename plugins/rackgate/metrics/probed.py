"""Metrics that are measured directly: probes of preflight and of sites, and counts of the batch exercise."""

from __future__ import annotations

from collections.abc import Iterable

from rackgate.engines.api_smoke import SMOKE
from rackgate.metrics.layers import layer_of_inputs
from rackgate.metrics.metric import MeasureFunction, Metric, Register
from rackgate.metrics.observation import Observation
from rackgate.nouns.measurement import Layer, Measurement, Reason, missing
from rackgate.nouns.slo import ONE_VALUE, Slo
from rackgate.preflight.host_metrics import host_metrics
from rackgate.probes.probe import Probe, metric_of
from rackgate.telemetry.kernel.run_events import RUN_PROBES
from rackgate.telemetry.reading import REQUIRED

_PROBED = {
    "engine_reachable": (
        "bool",
        ("engine",),
        "1 if the engine's address accepts a connection and speaks HTTP, else 0.",
    ),
    "model_served": ("bool", ("engine",), "1 if /v1/models lists the model that was asked for, else 0."),
    "first_request_ok": (
        "bool",
        ("engine",),
        "1 if one streamed request gave a token and ended well before its deadline, else 0.",
    ),
    "gateway_request_ok": (
        "bool",
        ("gateway",),
        "1 if one streamed request through the gateway gave a token and ended well, else 0.",
    ),
    "card_present": (
        "bool",
        ("card",),
        "1 if what the node's cards are read from lists the declared card, else 0.",
    ),
    "telemetry_coverage": (
        "ratio",
        tuple(f"card:{name}" for name in REQUIRED),
        "Signals of the card with a value / required ones (temperature, power, SM clock, clock events).",
    ),
    **{name: ("bool", ("engine",), definition) for name, definition in SMOKE.items()},
    **{name: ("events", ("kernel_log",), definition) for name, definition in RUN_PROBES.items()},
    **{name: (one.unit, one.inputs, one.definition) for name, one in host_metrics().items()},
}
"""Unit, inputs and definition of each metric that is measured directly, without a load."""

_LAYERS = {
    "model_served": "model",
    "api_unknown_model": "model",
    "kernel_events_in_run": "driver",
    "kernel_warnings_in_run": "driver",
    **{name: str(one.layer) for name, one in host_metrics().items() if one.layer},
}
"""Layers that the inputs do not say."""

_COUNTS = {
    "batch_lost": ("lost", "Tasks of the batch without a terminal record after the retry."),
    "batch_duplicated": ("duplicated", "Terminal records beyond the first of their task after the retry."),
    "batch_overwritten": (
        "overwritten",
        "Terminal records that were there before the retry and then changed or vanished.",
    ),
    "batch_unexpected": ("unexpected", "Output lines that belong to no task or are no JSON."),
    "batch_failed": ("failed", "Tasks whose terminal record is an error."),
    "batch_regenerated": (
        "regenerated",
        "Records that a second full retry of the finished batch added or changed, or requests it made.",
    ),
}


def _probe(name: str, definition: str) -> MeasureFunction:
    def probed(observation: Observation, slo: Slo, entity: str) -> Measurement:
        found = observation.probes.get((name, entity))
        return found or missing(name, entity, slo.unit, Reason.ABSENT, f"{entity} was not probed")

    probed.__doc__ = definition
    return probed


def _count(name: str, attribute: str, definition: str) -> MeasureFunction:
    def counted(observation: Observation, slo: Slo, entity: str) -> Measurement:
        exercise = observation.batch
        if exercise is None:
            return missing(name, entity, slo.unit, Reason.ABSENT, "no batch was run")
        if exercise.report is None:
            return missing(name, entity, slo.unit, exercise.reason or Reason.ABSENT, exercise.detail)
        ids = getattr(exercise.report, attribute)
        if ids is None:
            return missing(name, entity, slo.unit, Reason.ABSENT, f"{attribute} records were not looked at")
        if attribute == "unexpected":
            ids = (*ids, *(f"line {line}" for line in exercise.report.unreadable))
        if attribute != "failed" and len(exercise.report.failed) == exercise.report.tasks:
            return missing(
                name, entity, slo.unit, Reason.ABSENT, "no task got an answer: nothing was retried"
            )
        generated = exercise.generations or 0 if attribute == "regenerated" else 0
        if generated > len(ids):
            ids = (*ids, *(["a generation that left no trace"] * (generated - len(ids))))
        shown = ", ".join(str(one) for one in list(ids)[:5])
        return Measurement(
            metric=name,
            entity=entity,
            value=float(len(ids)),
            unit=slo.unit,
            count=exercise.report.tasks,
            detail=shown,
        )

    counted.__doc__ = definition
    return counted


def metrics_of_probes(probes: Iterable[Probe]) -> dict[str, Metric]:
    """Return the metrics `probe.NAME.VALUE` of the acceptance file's probes."""
    found = {}
    for probe in probes:
        for value, unit in probe.values.items():
            name = metric_of(probe.name, value)
            told = probe.definitions.get(value) or f"What the site's probe {probe.name} says of {value}."
            found[name] = Metric(
                name=name,
                unit=unit,
                function=_probe(name, told),
                owner=f"[probe.{probe.name}]",
                statistics=ONE_VALUE,
                windows=("load",),
                inputs=probe.inputs,
                layer=Layer(probe.layer) if probe.layer else layer_of_inputs(probe.inputs),
            )
    return found


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    for name, (unit, inputs, definition) in _PROBED.items():
        host_metric = host_metrics().get(name)
        register(
            name,
            unit,
            _probe(name, definition),
            statistics=ONE_VALUE,
            windows=("load",),
            inputs=inputs,
            layer=_LAYERS.get(name, ""),
            vendor=host_metric.vendor if host_metric else "",
        )
    for name, (attribute, definition) in _COUNTS.items():
        register(
            name,
            "records",
            _count(name, attribute, definition),
            statistics=ONE_VALUE,
            windows=("load",),
            inputs=("batch",),
        )
