"""What a probe measured directly, and what a batch exercise counted."""

from __future__ import annotations

from collections.abc import Iterable

from rackgate.engines.api_smoke import SMOKE
from rackgate.hosts.facts.host import FACTS
from rackgate.metrics.layers import layer_of_inputs
from rackgate.metrics.metric import MeasureFunction, Metric, Register
from rackgate.metrics.observation import Observation
from rackgate.nouns.measurement import Layer, Measurement, Reason, missing
from rackgate.nouns.slo import ONE_VALUE, Slo
from rackgate.preflight.cards import CARD_PROBES
from rackgate.preflight.container import CONTAINER_PROBES
from rackgate.preflight.driver import DRIVER_PROBES
from rackgate.preflight.host_metrics import HOST_STEPS, NODE_PROBES
from rackgate.preflight.inventory import CARD_HOLDERS, NODE_INVENTORY
from rackgate.preflight.links import LINK_PROBES
from rackgate.preflight.storage import STORAGE_PROBES
from rackgate.probes.probe import Probe, metric_of
from rackgate.telemetry.kernel.run_events import RUN_PROBES
from rackgate.telemetry.reading import CARD_FIELDS, CHASSIS_FIELDS, REQUIRED

_PROBES = {
    "engine_reachable": ("bool", "1 if the engine's address accepts a connection and speaks HTTP, else 0."),
    "model_served": ("bool", "1 if /v1/models lists the model that was asked for, else 0."),
    "first_request_ok": (
        "bool",
        "1 if one streamed request gave a token and ended well before its deadline, else 0.",
    ),
    "gateway_request_ok": (
        "bool",
        "1 if one streamed request through the gateway gave a token and ended well, else 0.",
    ),
    "card_present": ("bool", "1 if what the node's cards are read from lists the declared card, else 0."),
    "telemetry_coverage": (
        "ratio",
        "Signals of the card with a value / required ones (temperature, power, SM clock, clock events).",
    ),
    **{name: ("bool", definition) for name, definition in SMOKE.items()},
    **{name: ("events", definition) for name, definition in RUN_PROBES.items()},
}

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


_INPUTS = {
    "engine_reachable": ("engine",),
    "model_served": ("engine",),
    "first_request_ok": ("engine",),
    "gateway_request_ok": ("gateway",),
    **dict.fromkeys(SMOKE, ("engine",)),
    "card_present": ("card",),
    "telemetry_coverage": tuple(f"card:{name}" for name in REQUIRED),
    "pcie_width_lost": ("card:pcie_width", "card:pcie_width_max"),
    "memory_in_use_mib": ("card:memory_used_mib",),
    "recovery_action": ("card:recovery_action|host:driver_answer",),
    "fabric_outside": ("host:driver_answer",),
    "undeclared_cards": ("card",),
    **dict.fromkeys((*CARD_HOLDERS, *DRIVER_PROBES), ("host:driver_answer",)),
    "identity_differences": ("card",),
    "nvlinks_lost": ("host:nvlinks",),
    "infiniband_ports_lost": ("host:infiniband",),
    "partition_ports_outside": ("host:partitions",),
    "imex_nodes_lost": ("host:imex_domain",),
    "nvme_drives_lost": ("host:nvme_drives",),
    "clock_distance_s": ("host:clock_to_ours",),
    "leak_detectors_wet": ("redfish:leak_detectors_wet", "redfish:leak_detectors_unknown"),
    **dict.fromkeys(STORAGE_PROBES, ("host:kernel", "tool:fio|tool:dd")),
    **dict.fromkeys(CONTAINER_PROBES, ("docker",)),
    "pins_differing": ("host:kernel",),
    **dict.fromkeys((*HOST_STEPS, "host_warnings", "host_outliers", "facts_split"), ("host:kernel",)),
    "host_module": ("host:kernel", "host:nvidia_loaded"),
    "host_driver": ("host:kernel", "host:driver_module", "host:driver_library"),
    "host_cuda": ("host:kernel", "host:cuda"),
    **dict.fromkeys(
        ("xids_since_boot", "xids_warned_since_boot", "kernel_events_since_boot", *RUN_PROBES),
        ("kernel_log",),
    ),
}


def inputs_of(name: str) -> tuple[str, ...]:
    """Return what a probe is made from: of its own name where that is a signal or a fact of a host."""
    kinds = {"card": CARD_FIELDS, "redfish": CHASSIS_FIELDS, "host": FACTS}
    named = tuple(f"{kind}:{name}" for kind, names in kinds.items() if name in names)
    return _INPUTS.get(name, named)


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
                layer=Layer(probe.layer) if probe.layer else layer_of_inputs(name, probe.inputs),
            )
    return found


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    of_cards = CARD_PROBES | CARD_HOLDERS | DRIVER_PROBES
    of_nodes = NODE_PROBES | LINK_PROBES | NODE_INVENTORY | STORAGE_PROBES | CONTAINER_PROBES
    for name, (unit, definition) in (_PROBES | of_cards | of_nodes).items():
        register(
            name,
            unit,
            _probe(name, definition),
            statistics=ONE_VALUE,
            windows=("load",),
            inputs=inputs_of(name),
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
