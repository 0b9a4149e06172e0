"""Everything that checks need is tried once, side by side, before one deadline. Nothing is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rackgate.doctor import asking
from rackgate.doctor.asking import Engineered
from rackgate.hosts.concurrently import within
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.tools.nvidia_smi_inventory import ListedCard
from rackgate.nouns.target import Target
from rackgate.preflight.chassis import asked_for_firmware, firmware_of
from rackgate.telemetry.kernel.event_history import EventBook
from rackgate.telemetry.reading import Reading

_SHARE = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found. What has no entry did not answer within `deadline_s`, or was not asked.

    `readings` are of each node's cards, with all that their source lists; `logs` is each node's kernel
    log with the problem of reading it; `firmware` are the versions of each controller by its ids;
    `tools` is where a program is on a node, None if it is not there.
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
    engines: Mapping[str, Engineered] = field(default_factory=dict)
    gateway: Engineered | None = None
    load_machines: Engineered | None = None


def examine(target: Target, tools: Iterable[str] = (), deadline_s: float = 8.0) -> Examination:
    """Return what the nodes, engines and the gateway of a target say within the deadline."""
    started = time.monotonic()
    limit_s, wanted = deadline_s * _SHARE, tuple(dict.fromkeys(tools))
    jobs: dict[tuple[str, str], Callable[[], Any]] = {}
    for node in target.nodes:
        jobs["readings", node.name] = partial(asking.ask_cards, node, target)
        if node.access.reaches_host:
            jobs["facts", node.name] = partial(asking.ask_host, node, target, limit_s)
            jobs["tools", node.name] = partial(asking.ask_tools, node, target, wanted, limit_s)
        if node.access.reaches_host or node.access.kernel_log:
            jobs["logs", node.name] = partial(asking.ask_kernel_log, node, target)
        if node.access.redfish is not None:
            jobs["chassis", node.name] = partial(asking.ask_chassis, node, limit_s)
    for node in asked_for_firmware(target.nodes):
        jobs["firmware", node.name] = partial(firmware_of, node)
    for spec in target.engines:
        jobs["engines", spec.entity] = partial(asking.ask_engine, spec, target, limit_s)
    if target.gateway is not None:
        jobs["gateway", "gateway"] = partial(asking.ask_gateway, target, limit_s)
    if target.load_machines is not None:
        jobs["load_machines", "load_machines"] = partial(asking.ask_load_machines, target.load_machines)
    answers = within(jobs, deadline_s)

    def of(kind: str) -> dict[str, Any]:
        return {name: answer for (asked, name), answer in answers.items() if asked == kind}

    return Examination(
        target=target,
        deadline_s=deadline_s,
        took_s=time.monotonic() - started,
        readings=of("readings"),
        facts=of("facts"),
        logs=of("logs"),
        chassis=of("chassis"),
        firmware=of("firmware"),
        tools={(node, name): path for node, found in of("tools").items() for name, path in found.items()},
        engines=of("engines"),
        gateway=of("gateway").get("gateway"),
        load_machines=of("load_machines").get("load_machines"),
    )
