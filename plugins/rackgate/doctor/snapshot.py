"""Snapshot of a rack: all sources that checks need, queried at the same time before one deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rackgate.doctor import queries
from rackgate.doctor.queries import Readiness
from rackgate.hosts.concurrently import within
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.tools.nvidia_smi_inventory import ListedCard
from rackgate.nouns.target import Target
from rackgate.preflight.chassis import asked_for_firmware, firmware_of
from rackgate.telemetry.kernel.event_history import EventBook
from rackgate.telemetry.reading import Reading

_QUERY_SHARE = 0.6  # of the deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The answers of a rack. A source without an entry did not answer in time, or was not queried.

    By node: `readings` of its cards with the cards that the source lists, `facts` of its host, its kernel
    log with the problem of reading it, readings of its `chassis`, and `firmware` versions by controller.
    `tools` is the path of a program on a node, None where it is not on the PATH.
    """

    target: Target
    deadline_s: float
    took_s: float = 0.0
    readings: Mapping[str, tuple[tuple[Reading, ...], tuple[ListedCard, ...] | None]] = field(
        default_factory=dict
    )
    facts: Mapping[str, Mapping[str, Fact]] = field(default_factory=dict)
    logs: Mapping[str, tuple[EventBook, str]] = field(default_factory=dict)
    chassis: Mapping[str, tuple[Reading, ...]] = field(default_factory=dict)
    firmware: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tools: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    engines: Mapping[str, Readiness] = field(default_factory=dict)
    gateway: Readiness | None = None
    load_machines: Readiness | None = None


def take_snapshot(target: Target, tools: Iterable[str] = (), deadline_s: float = 8.0) -> Snapshot:
    """Return the answers of a target's nodes, engines and gateway within the deadline; nothing is changed."""
    started = time.monotonic()
    limit_s, wanted = deadline_s * _QUERY_SHARE, tuple(dict.fromkeys(tools))
    jobs: dict[tuple[str, str], Callable[[], Any]] = {}
    for node in target.nodes:
        jobs["readings", node.name] = partial(queries.query_cards, node, target)
        if node.access.reaches_host:
            jobs["facts", node.name] = partial(queries.query_host, node, target, limit_s)
            jobs["tools", node.name] = partial(queries.query_tools, node, target, wanted, limit_s)
        if node.access.reaches_host or node.access.kernel_log:
            jobs["logs", node.name] = partial(queries.query_kernel_log, node, target)
        if node.access.redfish is not None:
            jobs["chassis", node.name] = partial(queries.query_chassis, node, limit_s)
    for node in asked_for_firmware(target.nodes):
        jobs["firmware", node.name] = partial(firmware_of, node)
    for spec in target.engines:
        jobs["engines", spec.entity] = partial(queries.query_engine, spec, target, limit_s)
    if target.gateway is not None:
        jobs["gateway", "gateway"] = partial(queries.query_gateway, target, limit_s)
    if target.load_machines is not None:
        jobs["load_machines", "load_machines"] = partial(queries.query_load_machines, target.load_machines)
    answers = within(jobs, deadline_s)

    def by_name(kind: str) -> dict[str, Any]:
        return {name: answer for (of_kind, name), answer in answers.items() if of_kind == kind}

    return Snapshot(
        target=target,
        deadline_s=deadline_s,
        took_s=time.monotonic() - started,
        **{kind: by_name(kind) for kind in ("readings", "facts", "logs", "chassis", "firmware", "engines")},
        tools={
            (node, tool): path for node, paths in by_name("tools").items() for tool, path in paths.items()
        },
        gateway=answers.get(("gateway", "gateway")),
        load_machines=answers.get(("load_machines", "load_machines")),
    )
