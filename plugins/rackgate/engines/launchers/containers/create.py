"""How a container engine is created: everything the daemon is told, as data, and then the act."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackgate.engines.launchers.containers.daemon import Daemon
from rackgate.engines.launchers.containers.devices import device_request
from rackgate.engines.launchers.containers.engine import EngineContainer, NetworkedContainer
from rackgate.engines.launchers.containers.images import Image
from rackgate.engines.launchers.members import without_cards
from rackgate.engines.launchers.secrets import WrappedStart
from rackgate.engines.launchers.settings import text, text_table, texts, whole_table
from rackgate.nouns.target import EngineSpec

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer


SHM_SIZE = "1g"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """One container to be started. `spec.settings` is filled in.

    `bind` is the published address, None for a container that is on its machine's own network; `metrics` is
    the port of its metrics page inside and where that is published, None if it needs none of its own.
    """

    spec: EngineSpec
    name: str
    image: Image
    daemon: Daemon
    labels: Mapping[str, str]
    environment: Mapping[str, str]
    start: WrappedStart
    files: Mapping[str, bytes]
    inside_port: int
    bind: tuple[str, int] | None
    network: str = ""
    metrics: tuple[int, tuple[str, int]] | None = None


def create_options(plan: ContainerPlan) -> dict[str, Any]:
    """Return what goes into the one `with_kwargs` call: a second one would replace the first."""
    from docker.types import DeviceRequest, EndpointConfig, Ulimit

    settings = plan.spec.settings
    request = device_request(plan.spec)
    ipc = text(settings, "ipc")
    options: dict[str, Any] = {
        "labels": dict(plan.labels),
        "device_requests": [DeviceRequest(**request)] if request else None,
        "ulimits": [
            Ulimit(name=name, soft=value, hard=value)
            for name, value in whole_table(settings, "ulimits").items()
        ],
        "ipc_mode": ipc,
        # Docker's own 64 MB let NCCL die in a way that looks like broken hardware.
        "shm_size": None if ipc == "host" else text(settings, "shm_size", SHM_SIZE),
        "mem_limit": text(settings, "memory"),
        "user": text(settings, "user"),
    }
    entrypoint = plan.start.entrypoint or texts(settings, "entrypoint")
    if entrypoint:
        options["entrypoint"] = list(entrypoint)
    if plan.bind is None:
        options["network_mode"] = "host"
    elif plan.network:
        options["network"] = plan.network
        options["networking_config"] = {plan.network: EndpointConfig("1.40", aliases=[plan.name])}
    return {name: value for name, value in options.items() if value not in (None, [])}


def start_container(plan: ContainerPlan) -> EngineContainer:
    """Create the container, lay its secrets into it and start it; nothing is left if that fails."""

    def again(absent: Sequence[str]) -> Callable[[], DockerContainer]:
        return partial(_started, replace(plan, spec=without_cards(plan.spec, absent)))

    container = _started(plan)
    if plan.bind is None:
        return EngineContainer(container, again)
    return NetworkedContainer(container, again, local=plan.daemon.is_local)


def _started(plan: ContainerPlan) -> DockerContainer:
    from testcontainers.core.container import DockerContainer

    # By id: between our look and the start a tag can move to another image.
    container = DockerContainer(plan.image.ident, docker_client_kw=plan.daemon.client_options)
    container = container.with_kwargs(**create_options(plan))
    if plan.start.command:
        container = container.with_command(list(plan.start.command))
    container.with_envs(**plan.environment, **plan.start.environment)
    for table, mode in (("volumes", "ro"), ("writable_volumes", "rw")):
        for outside, inside in text_table(plan.spec.settings, table).items():
            container.with_volume_mapping(_outside(outside, plan.daemon), inside, mode)
    for path, content in (*plan.start.files.items(), *plan.files.items()):
        container.with_copy_into_container(content, path, 0o444)
    # Address and port are ours, in one binding: a port drawn per address family by the daemon can lead
    # `localhost` to another engine, and would change with each restart.
    if plan.bind is not None:
        ports: dict[str, Any] = container.ports
        ports[f"{plan.inside_port}/tcp"] = plan.bind
        if plan.metrics is not None:
            ports[f"{plan.metrics[0]}/tcp"] = plan.metrics[1]
    try:
        return container.start()
    except BaseException:
        container.stop()
        raise


def _outside(path: str, daemon: Daemon) -> str:
    """Return the host's path; a relative one is ours, and only a daemon of this machine sees it."""
    return str(Path(path).expanduser().resolve()) if daemon.is_local else path
