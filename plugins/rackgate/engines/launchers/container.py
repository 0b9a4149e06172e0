"""The `container` launcher: an engine in a container with exactly the cards it was given, gone afterwards."""

from __future__ import annotations

import os
import re
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackgate.engine import Engine
from rackgate.engines.daemon import (
    NoDaemon,
    choose_reaper,
    daemon_address,
    local_daemon,
    remove_labelled,
)
from rackgate.engines.launchers.engine_container import EngineContainer, status_ended
from rackgate.engines.launchers.outcome import (
    ended,
    key_headers,
    log_tail,
    not_ready,
    redacted,
    secret_names,
    start_refused,
)
from rackgate.engines.launchers.ports import free_port, url_of
from rackgate.engines.launchers.process import filled_in
from rackgate.engines.launchers.settings import (
    NUMBER,
    PORT,
    TEXT,
    TEXT_TABLE,
    TEXTS,
    Key,
    number,
    problems_of,
    text,
    text_table,
    texts,
)
from rackgate.engines.leftovers import LABEL_PREFIX, owner_labels
from rackgate.engines.readiness import probe_engine, wait_until_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import docker

    from rackgate.target import EngineSpec

__all__ = ["KEYS", "check_settings", "container", "device_request"]

KEYS = {
    "image": Key(kind=TEXT, required=True),
    "command": Key(kind=TEXTS),
    "env": Key(kind=TEXT_TABLE),
    "env_from": Key(kind=TEXTS),
    "volumes": Key(kind=TEXT_TABLE),
    "port": Key(kind=PORT),
    "shm_size": Key(kind=TEXT),
    "device_ids": Key(kind=TEXTS),
    "device_driver": Key(kind=TEXT),
    "docker_host": Key(kind=TEXT),
    "pull": Key(kind=TEXT, one_of=("never", "missing")),
    "ready_timeout_s": Key(kind=NUMBER),
    "stop_timeout_s": Key(kind=NUMBER),
}
READY_TIMEOUT_S = 900.0
STOP_TIMEOUT_S = 20.0
_PORT_ATTEMPTS = 3
_ADDRESS = "127.0.0.1"


def check_settings(settings: Mapping[str, object]) -> list[str]:
    """Return what is wrong with `[engine.settings]` of a container engine."""
    found = problems_of(settings, KEYS)
    size = settings.get("shm_size")
    if isinstance(size, str) and not re.fullmatch(r"[1-9][0-9]*[bkmgBKMG]?", size):
        found.append(f"'shm_size' must be a size such as '512m' or '1g', not {size!r}")
    host = settings.get("docker_host")
    if isinstance(host, str) and not host.startswith("unix://"):
        found.append(f"'docker_host' must be unix://SOCKET of this machine, not {host!r}")
    volumes = settings.get("volumes")
    if isinstance(volumes, dict):
        found.extend(
            f"'volumes': the container's path must be absolute, not {inside!r}"
            for inside in volumes.values()
            if isinstance(inside, str) and not inside.startswith("/")
        )
    return found


def device_request(spec: EngineSpec) -> dict[str, Any] | None:
    """Return the arguments of the one device request, by explicit ids; None for an engine without cards.

    `device_ids` in the settings wins (indexes or UUIDs; an empty list asks for none), else the indexes of
    the engine's cards. Never a count beside the ids: the daemon refuses both, and takes neither for "none".
    """
    ids = texts(spec.settings, "device_ids")
    if "device_ids" not in spec.settings:
        ids = tuple(card.rpartition("gpu")[2] for card in spec.cards)
    if not ids:
        return None
    request: dict[str, Any] = {"device_ids": list(ids), "capabilities": [["gpu"]]}
    driver = text(spec.settings, "device_driver")
    return request if driver is None else {**request, "driver": driver}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How the container is started."""

    spec: EngineSpec
    labels: Mapping[str, str]
    environment: Mapping[str, str]
    daemon: str

    @property
    def launch_label(self) -> str:
        name = f"{LABEL_PREFIX}launch"
        return f"{name}={self.labels[name]}"


@contextmanager
def container(spec: EngineSpec, *, run_id: str, log_dir: str) -> Iterator[Engine]:
    """Yield the engine after its first token; on leaving, the container is gone and its log is kept.

    Raises `LaunchFailed` on entering: at once if the daemon refuses or the container exits, else at
    `ready_timeout_s`.
    """
    start = time.monotonic()
    headers = key_headers(spec)
    plan = _plan(spec, run_id)
    client = _client(spec, plan)
    log_path = Path(log_dir) / f"{spec.name}.log"
    try:
        digest = _image_digest(spec, client)
        choose_reaper(client)
        running, port = _run(plan)
        try:
            url = url_of(_ADDRESS, port)
            _wait(spec, running, url, headers, start)
            yield Engine(
                spec=spec,
                url=url,
                headers=headers,
                handle=running,
                cold_start_s=time.monotonic() - start,
                image_digest=digest,
                log_path=str(log_path),
            )
        finally:
            _end(spec, running, log_path)
    finally:
        # By label, so that a container is removed although its creation was cut short by Ctrl-C.
        remove_labelled(client, plan.launch_label)
        client.close()


def _plan(spec: EngineSpec, run_id: str) -> _Plan:
    names = texts(spec.settings, "env_from")
    absent = [name for name in names if name not in os.environ]
    if absent:
        raise start_refused(
            spec,
            "container",
            f"not set in our environment: {', '.join(absent)}",
            f"export {' '.join(absent)}",
        )
    return _Plan(
        spec=spec,
        labels=owner_labels(run_id, spec.name, uuid.uuid4().hex),
        environment={name: os.environ[name] for name in names} | text_table(spec.settings, "env"),
        daemon=text(spec.settings, "docker_host", "") or "",
    )


def _client(spec: EngineSpec, plan: _Plan) -> docker.DockerClient:
    try:
        return local_daemon(plan.daemon or None)
    except NoDaemon as error:
        raise start_refused(
            spec,
            "container",
            str(error),
            "start the daemon, or see that this user may use its socket (group docker)",
        ) from error


def _image_digest(spec: EngineSpec, client: docker.DockerClient) -> str:
    """Return what pins the image: its registry digest, or its own id if it never was in a registry."""
    from docker.errors import APIError, ImageNotFound

    name = text(spec.settings, "image") or ""
    try:
        image = client.images.get(name)
    except ImageNotFound as error:
        if text(spec.settings, "pull", "never") == "never":
            raise start_refused(
                spec,
                "container",
                f"the image {name} is not on this machine",
                f"run `docker pull {name}` or build it; pull = 'missing' lets the launcher do it",
            ) from error
        try:
            image = client.images.pull(name)
        except APIError as refusal:
            raise start_refused(
                spec,
                "container",
                str(refusal.explanation or refusal),
                "check the image's name and `docker login`",
            ) from refusal
    digests = image.attrs.get("RepoDigests") or [image.id]
    return str(digests[0]).rpartition("@")[2]


def _run(plan: _Plan) -> tuple[EngineContainer, int]:
    """Start the container; return it and the port of 127.0.0.1 that is mapped to the engine."""
    from docker.errors import APIError

    for attempt in range(_PORT_ATTEMPTS):
        port = free_port(_ADDRESS)
        try:
            return _run_on(plan, port), port
        except APIError as error:
            said = str(error.explanation or error)
            taken = "already allocated" in said or "address already in use" in said
            if taken and attempt + 1 < _PORT_ATTEMPTS:
                continue  # somebody took it between our look and the daemon's
            raise start_refused(plan.spec, "container", said, "see the daemon's own words") from error
    raise AssertionError("unreachable")


def _run_on(plan: _Plan, port: int) -> EngineContainer:
    from docker.types import DeviceRequest
    from testcontainers.core.container import DockerContainer

    spec = plan.spec
    inside = int(str(spec.settings.get("port", 8000)))
    values = {"port": str(inside), "host": "0.0.0.0", "model": spec.model, "name": spec.name}
    request = device_request(spec)
    options = {"environment": {"DOCKER_HOST": daemon_address(plan.daemon or None)}}
    box = DockerContainer(text(spec.settings, "image") or "", docker_client_kw=options)
    # One call: a second one would replace the first. The device request must be in a list.
    box = box.with_kwargs(
        labels=dict(plan.labels),
        shm_size=text(spec.settings, "shm_size", "1g"),
        device_requests=[DeviceRequest(**request)] if request else None,
    )
    command = filled_in(texts(spec.settings, "command"), values)
    if command:
        box = box.with_command(command)
    box.with_envs(**plan.environment)
    for outside, path in text_table(spec.settings, "volumes").items():
        box.with_volume_mapping(str(Path(outside).resolve()), path, "ro")
    # Address and port are ours, in one binding: a port drawn per address family by the daemon can lead
    # `localhost` to another engine, and would change with each restart.
    ports: dict[str, Any] = box.ports
    ports[f"{inside}/tcp"] = (_ADDRESS, port)
    try:
        box.start()
        return EngineContainer(box)
    except BaseException:
        box.stop()
        raise


def _wait(
    spec: EngineSpec, running: EngineContainer, url: str, headers: dict[str, str], start: float
) -> None:
    deadline_s = number(spec.settings, "ready_timeout_s", READY_TIMEOUT_S)
    probe = wait_until_ready(
        lambda left_s: probe_engine(url, spec.model, headers, spec.protocol, left_s),
        lambda: status_ended(running.status),
        deadline_s,
    )
    if probe is not None and probe.ok:
        return
    tail = log_tail(running.logs(), secret_names(spec))
    if probe is not None:
        raise not_ready(spec, probe, deadline_s, tail)
    raise ended(spec, "container", f"exit code {running.exit_code}", time.monotonic() - start, tail)


def _end(spec: EngineSpec, running: EngineContainer, log_path: Path) -> None:
    """Stop the engine in an orderly way, keep its log, and remove the container."""
    running.stop(number(spec.settings, "stop_timeout_s", STOP_TIMEOUT_S))
    with suppress(OSError):
        log_path.write_text(redacted(running.logs().decode("utf-8", "replace"), secret_names(spec)), "utf-8")
    running.remove()
