"""Inputs of metrics, in words that `doctor`, the docs and messages share.

An input is `KIND` or `KIND:NAME`, such as `engine`, `card:power_w` or `tool:dcgmi`. Where any of several is
enough they are joined: `card:energy_j|card:power_w`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackgate.telemetry.reading import CARD_FIELDS, CHASSIS_FIELDS

KINDS = {
    "samples": "requests that a load offers to the engines behind the entity",
    "engine": "an engine that answers at its address and lists its model, or can be started",
    "gateway": "the gateway's address",
    "card": "a signal of a card, from its node's one source (exporter, prometheus, nvml, nvidia-smi)",
    "host": "a fact of a node's host: a file, or what a command of it says",
    "kernel_log": "a node's kernel log",
    "redfish": "a signal of a node's chassis, from its management controller",
    "tool": "a program on a node",
    "docker": "a container daemon on a node",
    "fault": "an engine that may be broken, and can be from here",
    "batch": "the batch system, the shipped one or the target's own",
    "instrument": "the load generator itself",
    "prices": "the target's [prices]",
}
"""Every kind of input and what it is."""

_NAMED = {"card": CARD_FIELDS, "redfish": CHASSIS_FIELDS}


class UnknownInput(ValueError):
    """A metric names an input that does not exist."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input. `name` is empty where the kind says it all."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


def alternatives(written: str) -> tuple[Input, ...]:
    """Return what is written as one input: any of the result is enough; raises `UnknownInput`."""
    found = []
    for part in written.split("|"):
        kind, _, name = part.strip().partition(":")
        if kind not in KINDS:
            raise UnknownInput(f"unknown input '{part.strip()}'; valid: {', '.join(KINDS)}")
        if name and kind in _NAMED and name not in _NAMED[kind]:
            raise UnknownInput(f"input '{part.strip()}': there is no such field of a {kind}")
        found.append(Input(kind, name))
    return tuple(found)


def checked_inputs(name: str, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Return a metric's inputs as they are; raises `UnknownInput` that names the metric."""
    try:
        for written in inputs:
            alternatives(written)
    except UnknownInput as error:
        raise UnknownInput(f"metric '{name}': {error}") from error
    return inputs
