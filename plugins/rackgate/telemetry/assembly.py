"""Assembly of a rack's sources from its target: cards, hosts, kernel logs, chassis, engine pages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path

from rackgate.hosts.docker_host import DockerHost, DockerRunner
from rackgate.hosts.runner import LocalRunner, RootRunner, Runner
from rackgate.hosts.ssh import SshRunner
from rackgate.nouns.node import Node, NodeAccess, Redfish
from rackgate.nouns.target import Target
from rackgate.telemetry.cards.exporter_source import ExporterSource
from rackgate.telemetry.cards.nvidia_smi_source import SmiSource
from rackgate.telemetry.cards.prometheus_source import PrometheusSource
from rackgate.telemetry.chassis.redfish_client import RedfishLogin
from rackgate.telemetry.chassis.redfish_source import RedfishSource
from rackgate.telemetry.engine_metrics import EngineMetricsSource
from rackgate.telemetry.host_source import HostSource
from rackgate.telemetry.kernel.local_source import KernelLogSource, may_be_read
from rackgate.telemetry.kernel.remote_source import RemoteKernelLog
from rackgate.telemetry.source import Source

_KMSG = Path("/dev/kmsg")

CARD_SOURCES = ("exporter", "prometheus", "nvml", "nvidia-smi")
"""The kinds of card sources; exactly one is used per node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryPlan:
    """The access to each node by name; a node that is missing has only its exporter.

    `with_cards` are the nodes that should have cards.
    """

    nodes: Mapping[str, NodeAccess] = field(default_factory=dict)
    with_cards: frozenset[str] = frozenset()
    prometheus: str | None = None
    prometheus_headers: Mapping[str, str] = field(default_factory=dict)
    ssh_config: Path | None = None
    engine_metrics: bool = True
    timeout_s: float = 2.0

    def access(self, node: str) -> NodeAccess:
        """Return how a node may be asked."""
        return self.nodes.get(node, NodeAccess())


def plan_of(target: Target) -> TelemetryPlan:
    """Return the plan that a target declares."""
    return TelemetryPlan(
        nodes={node.name: node.access for node in target.nodes},
        with_cards=frozenset(node.name for node in target.nodes if node.cards),
        prometheus=target.prometheus_url,
        prometheus_headers=_bearer(target.prometheus_key_env),
        ssh_config=_path(target.ssh_config),
    )


def runner_of(node: str, access: NodeAccess, plan: TelemetryPlan) -> Runner | None:
    """Return the runner of a node, None if the target opens no way into its host."""
    if access.root is not None:
        return RootRunner(_folder(access.root), node)
    if access.local:
        return LocalRunner(node, sudo=access.sudo)
    if access.ssh is not None:
        return SshRunner(access.ssh, name=node, config=plan.ssh_config, sudo=access.sudo)
    if access.docker is not None and access.docker_image is not None:
        cards = node in plan.with_cards
        return DockerRunner(
            DockerHost(daemon=access.docker, image=access.docker_image, cards=cards), name=node
        )
    return None


def assemble(target: Target, plan: TelemetryPlan) -> list[Source]:
    """Return the sources of a rack: cards, hosts, kernels' logs, controllers, and engines' metrics pages."""
    sources: list[Source] = []
    watched: list[Node] = []
    for node in target.nodes:
        access = plan.access(node.name)
        if card_kind_of(node, plan) == "prometheus" and plan.prometheus:
            watched.append(node)  # one source for all of them: one query a look
        else:
            sources.append(card_source_of(node, plan))
        sources += _host_sources(node, access, plan)
    if plan.prometheus and watched:
        sources.append(PrometheusSource(plan.prometheus, watched, headers=plan.prometheus_headers))
    if plan.engine_metrics:
        sources += _engine_sources(target, plan)
    return sources


def card_kind_of(node: Node, plan: TelemetryPlan) -> str:
    """Return which of `CARD_SOURCES` a node's cards are read from."""
    return replace(node, access=plan.access(node.name)).cards_read_from(plan.prometheus)


def card_source_of(node: Node, plan: TelemetryPlan) -> Source:
    """Return the card source of a node."""
    kind, access = card_kind_of(node, plan), plan.access(node.name)
    if kind == "nvml":
        from rackgate.telemetry.cards.nvml_source import NvmlSource

        return NvmlSource(node, deadline_s=plan.timeout_s)
    if kind == "prometheus" and plan.prometheus:
        return PrometheusSource(plan.prometheus, [node], headers=plan.prometheus_headers)
    runner = runner_of(node.name, access, plan) if kind == "nvidia-smi" else None
    if runner is not None:
        return SmiSource(node, runner)
    return ExporterSource(node, timeout_s=plan.timeout_s)


def _host_sources(node: Node, access: NodeAccess, plan: TelemetryPlan) -> list[Source]:
    found: list[Source] = []
    runner = runner_of(node.name, access, plan)
    if runner is not None:
        found.append(HostSource(node.name, runner))
    log = kernel_log_of(node, access, plan)
    if log is not None:
        found.append(log)
    if access.redfish is not None:
        found.append(chassis_source_of(node.name, access.redfish))
    return found


def chassis_source_of(
    node: str, redfish: Redfish, *, timeout_s: float = 5.0, sensors_s: float = 1.0
) -> RedfishSource:
    """Return the source of a node's chassis; the login is what the named variables hold now.

    Each poll reads sensors for `sensors_s` at most.
    """
    return RedfishSource(node, redfish.url, _login(redfish), timeout_s=timeout_s, sensors_s=sensors_s)


def kernel_log_of(
    node: Node, access: NodeAccess, plan: TelemetryPlan
) -> KernelLogSource | RemoteKernelLog | None:
    """Return a node's kernel log, with a runner of its own: sources poll side by side.

    This machine's is `/dev/kmsg`; where that may not be read, the journal or `dmesg`, as of other machines.
    """
    card_of = {card.pci: card.name for card in node.cards if card.pci}
    if access.kernel_log is not None:
        return KernelLogSource(node, Path(access.kernel_log), card_of=card_of)
    if access.local and access.root is None and may_be_read(_KMSG):
        return KernelLogSource(node, _KMSG, card_of=card_of)
    runner = runner_of(node.name, access, plan)
    return RemoteKernelLog(node.name, runner, card_of=card_of) if runner is not None else None


def _folder(root: str) -> Path:
    """Return the folder that stands in for a host; a bare name is one that ships with the simulator."""
    path = Path(root)
    return path if path.is_absolute() else Path(str(files("rackgate.simulator"))) / "host_roots" / path


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _login(redfish: Redfish) -> RedfishLogin:
    return RedfishLogin(
        user=os.environ.get(redfish.user_env, ""),
        password=os.environ.get(redfish.password_env, ""),
        session=redfish.session,
        ca_file=_path(redfish.ca_file),
        pinned_file=_path(redfish.pinned_file),
    )


def _bearer(variable: str | None) -> dict[str, str]:
    key = os.environ.get(variable, "") if variable else ""
    return {"authorization": f"Bearer {key}"} if key else {}


def _engine_sources(target: Target, plan: TelemetryPlan) -> list[Source]:
    from rackgate.engines.metrics_page import metrics_page

    pages = [(engine, metrics_page(engine)) for engine in target.engines]
    return [
        EngineMetricsSource(
            engine.entity,
            engine.nodes[0] if engine.nodes else engine.name,
            page.url,
            timeout_s=plan.timeout_s,
            headers=page.headers,
            route=page.route,
        )
        for engine, page in pages
        if page is not None
    ]
