"""In which layer a metric's failure lives, by what the metric is made from."""

from __future__ import annotations

from rackgate.nouns.measurement import Layer
from rackgate.nouns.slo import Slo

_BY_INPUT = {
    "instrument": Layer.CLIENT,
    "prices": Layer.CLIENT,
    "samples": Layer.SERVICE,
    "engine": Layer.SERVICE,
    "gateway": Layer.SERVICE,
    "fault": Layer.SERVICE,
    "batch": Layer.SERVICE,
    "docker": Layer.CONTAINER,
    "host": Layer.DRIVER,
    "kernel_log": Layer.HARDWARE,
    "card": Layer.HARDWARE,
    "redfish": Layer.HARDWARE,
    "tool": Layer.HARDWARE,
}

_BY_NAME = {
    "model_served": Layer.MODEL,
    "api_unknown_model": Layer.MODEL,
    "host_runtime": Layer.CONTAINER,
    "host_network": Layer.NETWORK,
    "infiniband_ports_lost": Layer.NETWORK,
    "infiniband_error_growth": Layer.NETWORK,
    "partition_ports_outside": Layer.NETWORK,
    **dict.fromkeys(
        ("kernel_events_failed", "kernel_events_warned", "kernel_events_since_boot"), Layer.DRIVER
    ),
    **dict.fromkeys(("kernel_events_in_run", "kernel_warnings_in_run"), Layer.DRIVER),
    "nvme_drives_lost": Layer.HARDWARE,
    "ecc_off": Layer.HARDWARE,
    "nvlinks_lost": Layer.HARDWARE,
    "fabric_outside": Layer.HARDWARE,
    "sram_uncorrectable": Layer.HARDWARE,
}
"""Metrics whose layer is another one than that of what they are made from."""

_BY_SCOPE = {"card": Layer.HARDWARE, "node": Layer.DRIVER}


def layer_of_inputs(name: str, inputs: tuple[str, ...]) -> Layer | None:
    """Return the layer of a metric, None for one that does not tell what it is made from.

    A metric of several inputs lives where the innermost of them does.
    """
    kinds = [part.split(":")[0].strip() for written in inputs for part in written.split("|")]
    layers = [_BY_INPUT[kind] for kind in kinds if kind in _BY_INPUT]
    return _BY_NAME.get(name) or max(layers, key=lambda layer: layer.depth, default=None)


def layer_of_row(slo: Slo, metric: Layer | None) -> Layer:
    """Return the row's own layer, else its metric's, else what its scope speaks for."""
    return Layer(slo.layer) if slo.layer else metric or _BY_SCOPE.get(str(slo.scope), Layer.SERVICE)
