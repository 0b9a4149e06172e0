"""Inspection of a rack's hosts before anything is started: facts, kernel log, storage, containers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType

from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.runner import Runner
from rackgate.nouns.measurement import Measurement, ProbeResults, Reason
from rackgate.nouns.node import Node
from rackgate.nouns.target import Target
from rackgate.preflight.container import probe_container
from rackgate.preflight.host_metrics import not_measured, of_group
from rackgate.preflight.kernel_events import probe_events
from rackgate.preflight.storage import probe_storage
from rackgate.telemetry.assembly import TelemetryPlan
from rackgate.telemetry.kernel.local_source import KernelLogSource
from rackgate.telemetry.kernel.remote_source import RemoteKernelLog

HOST_DEADLINE_S = 4.0
"""Deadline of a host for one fact, in seconds."""

_LOST = (Reason.TIMEOUT, Reason.UNREACHABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInspection:
    """Facts by node and first measurements of hosts, taken before any engine was started.

    `firmware` holds the versions of each node's controller by id.
    """

    facts: Mapping[str, Mapping[str, Fact]]
    probes: Mapping[tuple[str, str], Measurement]
    firmware: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def inspect_hosts(
    target: Target,
    *,
    profile: str = "smoke",
    hung: Mapping[str, Mapping[str, Fact]] = MappingProxyType({}),
) -> HostInspection:
    """Inspect each node that the target opens, side by side.

    Events of the log count by the classes of the profile. A node that does not answer costs one deadline,
    and so does a driver that hangs; `hung` holds by node the facts that have cost it already.
    """
    from rackgate.telemetry.assembly import plan_of

    plan = plan_of(target)
    facts: dict[str, dict[str, Fact]] = {}
    found: ProbeResults = {}
    with ThreadPoolExecutor(max_workers=32) as pool:
        looks = pool.map(
            lambda node: _look_into(node, plan, target, profile, hung.get(node.name, {})), target.nodes
        )
        for node, known, probes in looks:
            found.update(probes)
            if known is not None:
                facts[node.name] = known
    return HostInspection(facts=facts, probes=found)


def who_answered(look: HostInspection) -> str:
    """Return how many hosts answered, and why the others did not, in words."""
    mute = {node: known["kernel"] for node, known in look.facts.items() if known["kernel"].value is None}
    text = f"{len(look.facts) - len(mute)} of {len(look.facts)} hosts answered"
    return "; ".join([text, *(f"{node}: {fact.detail}" for node, fact in mute.items())])


def _look_into(
    node: Node, plan: TelemetryPlan, target: Target, profile: str, hung: Mapping[str, Fact]
) -> tuple[Node, dict[str, Fact] | None, ProbeResults]:
    """Return the facts of a node's host, and what its kernel's log, storage and containers show.

    None and nothing if it is closed.
    """
    from rackgate.hosts.facts.host import read_host
    from rackgate.telemetry.assembly import kernel_log_of, runner_of

    access = plan.access(node.name)
    runner, log = runner_of(node.name, access, plan), kernel_log_of(node, access, plan)
    known: dict[str, Fact] | None = None
    lost: Fact | None = None
    found: ProbeResults = {}
    if runner is not None:
        known = read_host(runner, HOST_DEADLINE_S, hung)
        lost = known["kernel"] if known["kernel"].reason in _LOST else None
        found |= _unasked(node, target, lost) if lost else _beyond(node, target, runner)
        runner.close()
    if log is not None:
        found |= _logged(node, log, lost, profile)
        log.close()
    return node, known, found


def _beyond(node: Node, target: Target, runner: Runner) -> ProbeResults:
    found: ProbeResults = {}
    if target.storage_path is not None:
        found |= probe_storage(node.name, runner, target.storage_path)
    if node.expect.container_image is not None:
        found |= probe_container(node, runner, node.expect.container_image)
    return found


def _unasked(node: Node, target: Target, lost: Fact) -> ProbeResults:
    """Return that nothing more was asked of a host that does not answer."""
    names = of_group("storage") if target.storage_path else ()
    if node.expect.container_image is not None:
        names += of_group("container")
    reason = lost.reason or Reason.UNREACHABLE
    return {(name, node.name): not_measured(name, node.name, reason, lost.detail) for name in names}


def _logged(
    node: Node, log: KernelLogSource | RemoteKernelLog, lost: Fact | None, profile: str
) -> ProbeResults:
    now_ns = time.perf_counter_ns()
    if lost is not None and node.access.kernel_log is None:
        log.nothing(lost.reason or Reason.UNREACHABLE, lost.detail)
    else:
        for _ in range(2):  # a message cut by the end of the first poll is whole in the second
            log.poll()
    return probe_events({node.name: log.book}, {node.name: log.problem}, now_ns, profile)
