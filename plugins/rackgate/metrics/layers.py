"""The layer of a metric's failure, derived from its inputs."""

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

_BY_SCOPE = {"card": Layer.HARDWARE, "node": Layer.DRIVER}


def layer_of_inputs(inputs: tuple[str, ...]) -> Layer | None:
    """Return the innermost layer of what a metric is made from; None without inputs."""
    kinds = [part.split(":")[0].strip() for written in inputs for part in written.split("|")]
    layers = [_BY_INPUT[kind] for kind in kinds if kind in _BY_INPUT]
    return max(layers, key=lambda layer: layer.depth, default=None)


def layer_of_row(slo: Slo, metric: Layer | None) -> Layer:
    """Return the row's own layer, else its metric's, else what its scope speaks for."""
    return Layer(slo.layer) if slo.layer else metric or _BY_SCOPE.get(str(slo.scope), Layer.SERVICE)
