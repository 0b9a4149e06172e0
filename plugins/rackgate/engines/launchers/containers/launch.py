"""The containers of one engine while they are started: daemons, networks, ports, secrets, cards."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rackgate.engines.launch_records import owner_labels
from rackgate.engines.launchers.containers.create import ContainerPlan, start_container
from rackgate.engines.launchers.containers.daemon import (
    Daemon,
    NoDaemon,
    choose_daemon,
    choose_reaper,
    open_daemon,
    remove_labelled,
)
from rackgate.engines.launchers.containers.devices import (
    compare_views,
    device_request,
    node_view,
    wanted_cards,
)
from rackgate.engines.launchers.containers.engine import EngineContainer
from rackgate.engines.launchers.containers.images import Image, resolve_image
from rackgate.engines.launchers.containers.published import Published, on_host
from rackgate.engines.launchers.containers.settings import shared_memory_problem
from rackgate.engines.launchers.containers.tunnel import reachable
from rackgate.engines.launchers.files import BOX_FOLDER, filled_files
from rackgate.engines.launchers.filling import filled_environment, filled_in, placeholders, with_defaults
from rackgate.engines.launchers.members import PartSpec, peer_values
from rackgate.engines.launchers.outcome import redacted, start_refused
from rackgate.engines.launchers.ports import url_of
from rackgate.engines.launchers.secrets import (
    SecretMissing,
    Secrets,
    WrappedStart,
    hidden_values,
    read_secrets,
    wrapped_start,
)
from rackgate.engines.launchers.settings import number, text, texts, whole
from rackgate.engines.metrics_page import own_metrics_port
from rackgate.nouns.target import EngineSpec

if TYPE_CHECKING:
    import docker


STOP_TIMEOUT_S = 20.0
_PORT_ATTEMPTS = 5


def filled_spec(part: PartSpec) -> EngineSpec:
    """Return the part's spec with what the catalogue adds to its settings."""
    return replace(
        part.spec, settings=with_defaults(part.spec.settings, in_container=True, cards=len(part.spec.cards))
    )


def _daemon_of(part: PartSpec) -> Daemon:
    settings = part.spec.settings
    try:
        return choose_daemon(
            text(settings, "docker_host"),
            context=text(settings, "docker_context"),
            tls_folder=text(settings, "docker_tls"),
        )
    except NoDaemon as error:
        raise start_refused(
            part.spec, "container", str(error), "name a daemon in docker_host or docker_context"
        ) from error


class ContainerLaunch:
    """The containers of one engine while they are started; what it opens is closed by the stack."""

    def __init__(
        self, spec: EngineSpec, run_id: str, log_dir: Path, tell: Callable[[str], None], stack: ExitStack
    ) -> None:
        self._spec = spec
        self._labels = owner_labels(run_id, spec.name, uuid.uuid4().hex)
        self._log_dir = log_dir
        self._tell = tell
        self._stack = stack
        self._clients: dict[str, docker.DockerClient] = {}
        self._near: dict[str, Daemon] = {}
        self._networks: dict[str, str] = {}
        self._published = Published()
        self.digests: dict[str, str] = {}

    def log_path(self, part: PartSpec) -> Path:
        """Return where the part's log is kept."""
        return self._log_dir / f"{part.spec.name}.log"

    def url_of(self, part: PartSpec) -> str:
        """Return where we reach the part: address and port of the one binding that it was given."""
        return url_of(_reached_at(part, _daemon_of(part)), self._published.bind(part, _daemon_of(part))[1])

    def with_metrics(self, front: PartSpec) -> EngineSpec:
        """Return the engine's spec with the port at which its metrics page is published, where it has one."""
        own, published = own_metrics_port(front.spec), self._metrics(front)
        if own is None or published is None:
            return self._spec
        return replace(self._spec, metrics=f":{published[1][1]}{own[1]}")

    def _metrics(self, part: PartSpec) -> tuple[int, tuple[str, int]] | None:
        inside = whole(filled_spec(part).settings, "port", 8000)
        return self._published.metrics(part, _daemon_of(part), inside)

    def started(self, part: PartSpec, parts: tuple[PartSpec, ...]) -> EngineContainer:
        """Return the running container of a part; raises `LaunchFailed`."""
        spec = filled_spec(part)
        problem = shared_memory_problem(spec)
        if problem:
            raise start_refused(spec, "container", problem, "set ipc = 'host' or raise shm_size")
        daemon = _daemon_of(part)
        secrets = _secrets_for(spec, daemon)
        client = self._client(spec, daemon)
        name = text(spec.settings, "image") or ""
        image = resolve_image(spec, client, name, text(spec.settings, "pull", "never") or "", self._tell)
        self.digests[part.short] = image.digest
        if len(parts) > 1 and not on_host(part):
            self._network(daemon, client, spec)
        running = self._run(part, parts, spec, image, secrets)
        self._stack.callback(self._end, part, running)
        _check_cards(spec, running, daemon, self._tell)
        return running

    def _client(self, spec: EngineSpec, daemon: Daemon) -> docker.DockerClient:
        if daemon.address in self._clients:
            return self._clients[daemon.address]
        try:
            self._near[daemon.address] = self._stack.enter_context(reachable(daemon))
            client = open_daemon(self._near[daemon.address])
        except NoDaemon as error:
            raise start_refused(
                spec,
                "container",
                str(error),
                "start the daemon, or see that this user may use its socket (group docker)",
            ) from error
        self._clients[daemon.address] = client
        self._stack.callback(client.close)
        label = next(f"{name}={value}" for name, value in self._labels.items() if name.endswith("launch"))
        # By label, so that a container is removed although its creation was cut short by Ctrl-C.
        self._stack.callback(remove_labelled, client, label)
        choose_reaper(client)
        return client

    def _network(self, daemon: Daemon, client: docker.DockerClient, spec: EngineSpec) -> None:
        """Make the network on which the parts on one daemon find each other by name."""
        from docker.errors import APIError

        if daemon.address in self._networks:
            return
        name = f"rackgate-{uuid.uuid4().hex[:12]}"
        try:
            client.networks.create(name, driver="bridge", labels=dict(self._labels))
        except APIError as error:
            raise start_refused(
                spec, "container", f"no network for its parts: {error.explanation}", ""
            ) from error
        self._networks[daemon.address] = name

    def _run(
        self, part: PartSpec, parts: tuple[PartSpec, ...], spec: EngineSpec, image: Image, secrets: Secrets
    ) -> EngineContainer:
        from docker.errors import APIError

        for attempt in range(_PORT_ATTEMPTS):
            try:
                return start_container(self._plan(part, parts, spec, image, secrets))
            except APIError as error:
                said = str(error.explanation or error)
                taken = "already allocated" in said or "address already in use" in said
                if taken and attempt + 1 < _PORT_ATTEMPTS and not _across_daemons(parts):
                    self._published.forget(part)  # somebody took it between our look and the daemon's
                    continue
                raise start_refused(spec, "container", said, "see the daemon's own words") from error
        raise AssertionError("unreachable")

    def _plan(
        self, part: PartSpec, parts: tuple[PartSpec, ...], spec: EngineSpec, image: Image, secrets: Secrets
    ) -> ContainerPlan:
        daemon = _daemon_of(part)
        bind = self._published.bind(part, daemon)
        host, inside = bind if on_host(part) else ("0.0.0.0", whole(spec.settings, "port", 8000))
        values = placeholders(spec, host, inside) | peer_values(self._peers(part, parts))
        values["files"] = BOX_FOLDER
        laid = {f"{BOX_FOLDER}/{name}": text for name, text in filled_files(spec.settings, values).items()}
        command = tuple(filled_in(texts(spec.settings, "command"), values))
        return ContainerPlan(
            spec=spec,
            name=part.short or spec.name,
            image=image,
            daemon=self._near[daemon.address],
            labels={**self._labels, "rackgate.image": image.name},
            environment=filled_environment(spec.settings, values),
            start=_wrapped(spec, image, secrets, command),
            files=laid,
            inside_port=inside,
            bind=None if on_host(part) else bind,
            network=self._networks.get(daemon.address, ""),
            metrics=self._metrics(part),
        )

    def _peers(self, part: PartSpec, parts: tuple[PartSpec, ...]) -> Mapping[str, tuple[str, int]]:
        """Return where a part reaches the others: by name on its own daemon's network, else as published."""
        own, found = _daemon_of(part).address, {}
        for peer in parts:
            daemon = _daemon_of(peer)
            near = (peer.short, whole(filled_spec(peer).settings, "port", 8000))
            far = (_reached_at(peer, daemon), self._published.bind(peer, daemon)[1])
            named = daemon.address == own and not on_host(part) and not on_host(peer)
            found[peer.short] = near if named else far
        return found

    def _end(self, part: PartSpec, running: EngineContainer) -> None:
        """Stop the engine in an orderly way, keep its log, and remove the container."""
        running.stop(number(part.spec.settings, "stop_timeout_s", STOP_TIMEOUT_S))
        with suppress(OSError):
            log = redacted(running.logs().decode("utf-8", "replace"), hidden_values(part.spec))
            self.log_path(part).write_text(log, "utf-8")
        running.remove()


def _across_daemons(parts: tuple[PartSpec, ...]) -> bool:
    """Return whether the parts know each other by published ports, which then cannot be drawn again."""
    return len({_daemon_of(part).address for part in parts}) > 1


def _reached_at(part: PartSpec, daemon: Daemon) -> str:
    wanted = text(part.spec.settings, "address")
    return wanted or (
        text(part.spec.settings, "bind_address") or "127.0.0.1" if daemon.is_local else daemon.host
    )


def _secrets_for(spec: EngineSpec, daemon: Daemon) -> Secrets:
    try:
        secrets = read_secrets(spec)
    except SecretMissing as error:
        raise start_refused(spec, "container", str(error), error.hint) from error
    if secrets.values and not daemon.is_private:
        raise start_refused(
            spec,
            "container",
            f"its secrets would travel to {daemon.address} in the clear",
            "use ssh://, or TLS: docker_tls, a context, or DOCKER_TLS_VERIFY and DOCKER_CERT_PATH",
        )
    return secrets


def _wrapped(spec: EngineSpec, image: Image, secrets: Secrets, command: tuple[str, ...]) -> WrappedStart:
    entrypoint = texts(spec.settings, "entrypoint") or image.entrypoint
    # With an entry point of our own the image's default command would be lost.
    words = command or (image.command if secrets.values else ())
    as_files = text(spec.settings, "secrets_as", "env") == "files"
    return wrapped_start(secrets, entrypoint, words, as_files=as_files)


def _check_cards(
    spec: EngineSpec, running: EngineContainer, daemon: Daemon, tell: Callable[[str], None]
) -> None:
    """Ask inside the container for its cards: a request that is silently not met must not be measured."""
    request = device_request(spec)
    if request is None:
        return
    running.expects_cards(near=daemon.is_local)
    inside = running.card_view()
    if inside is None or inside.cards is None:
        tell(f"{spec.name}: no nvidia-smi in the container, so its cards cannot be counted from inside")
        return
    name, message = compare_views(inside, node_view() if daemon.is_local else None, wanted_cards(request))
    if name:
        hint = "create the container again; if it stays so, see the container toolkit's configuration"
        raise start_refused(spec, "container", f"{message} [{name}]", hint)
