"""The keys of a container engine's table, and what can be wrong with their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rackgate.engines.launchers.containers.create import SHM_SIZE
from rackgate.engines.launchers.containers.devices import DEVICE_KEYS, device_problems
from rackgate.engines.launchers.files import FILES_KEY, file_problems
from rackgate.engines.launchers.filling import ENGINE_KEYS, IMAGE_KEYS, engine_problems, with_defaults
from rackgate.engines.launchers.members import MEMBERS_KEY, member_problems
from rackgate.engines.launchers.secrets import SECRET_KEYS
from rackgate.engines.launchers.settings import (
    PORT,
    TEXT,
    TEXT_TABLE,
    WHOLE_TABLE,
    Key,
    problems_of,
    size_bytes,
    text,
)
from rackgate.nouns.target import EngineSpec

KEYS = {
    **ENGINE_KEYS,
    **SECRET_KEYS,
    **DEVICE_KEYS,
    **MEMBERS_KEY,
    **FILES_KEY,
    **IMAGE_KEYS,
    "volumes": Key(kind=TEXT_TABLE),
    "writable_volumes": Key(kind=TEXT_TABLE),
    "host_port": Key(kind=PORT),
    "bind_address": Key(kind=TEXT),
    "address": Key(kind=TEXT),
    "network": Key(kind=TEXT, one_of=("bridge", "host")),
    "ipc": Key(kind=TEXT, one_of=("host", "private", "shareable")),
    "ulimits": Key(kind=WHOLE_TABLE),
    "user": Key(kind=TEXT),
    "docker_host": Key(kind=TEXT),
    "docker_context": Key(kind=TEXT),
    "docker_tls": Key(kind=TEXT),
}
_SCHEMES = ("unix://", "tcp://", "ssh://")


def check_settings(settings: Mapping[str, object]) -> list[str]:
    """Return what is wrong with `[engine.settings]` of a container engine."""
    unknown = engine_problems(settings)
    if unknown:
        return unknown
    keys = {**KEYS, "image": replace(KEYS["image"], required="members" not in settings)}
    found = problems_of(with_defaults(settings, in_container=True), keys)
    for name in ("shm_size", "memory"):
        found += _size_problem(name, settings.get(name))
    if "docker_host" in settings and "docker_context" in settings:
        found.append("only one of 'docker_host' and 'docker_context' can say which daemon")
    host = settings.get("docker_host")
    if isinstance(host, str) and not host.startswith(_SCHEMES):
        found.append(f"'docker_host' must be unix://SOCKET, tcp://HOST:PORT or ssh://HOST, not {host!r}")
    for table in ("volumes", "writable_volumes"):
        found += _volume_problems(table, settings.get(table))
    found += file_problems(settings)
    return found + device_problems(settings) + member_problems(settings, KEYS)


def _size_problem(name: str, value: object) -> list[str]:
    if not isinstance(value, str):
        return []
    try:
        size_bytes(value)
    except ValueError as error:
        return [f"'{name}' {error}"]
    return []


def _volume_problems(table: str, value: object) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [
        f"'{table}': the container's path must be absolute, not {inside!r}"
        for inside in value.values()
        if isinstance(inside, str) and not inside.startswith("/")
    ]


def shared_memory_problem(spec: EngineSpec) -> str:
    """Return why the shared memory cannot do for an engine of several cards; empty if it can.

    Collectives between cards of one node use it, and die of too little in a way that looks like hardware.
    """
    size = text(spec.settings, "shm_size", SHM_SIZE) or SHM_SIZE
    if len(spec.cards) < 2 or text(spec.settings, "ipc") == "host" or size_bytes(size) >= 2**30:
        return ""
    return f"shm_size = {size} is too small for an engine of {len(spec.cards)} cards"
