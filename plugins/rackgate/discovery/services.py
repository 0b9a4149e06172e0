"""Services that listen on this machine: engines, dcgm-exporters and Prometheus servers."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from rackgate.discovery.machine import Service
from rackgate.discovery.ports import Listener, Owner, listeners, owners
from rackgate.hosts.runner import Runner
from rackgate.nouns.route import DIRECT, Route

if TYPE_CHECKING:
    import httpx


_NEVER_HTTP = frozenset({21, 22, 25, 53, 110, 111, 139, 143, 389, 445, 2049, 3306, 5432, 6379, 11211, 27017})
_MOST_PORTS = 256
_CONNECT_S, _ANSWER_S = 1.0, 2.0
_EXPORTER_MARK = "DCGM_FI_"


def find_services(runner: Runner) -> tuple[Service, ...]:
    """Return the recognised services of this machine in the order of their ports.

    A port gets only GETs, and one POST: Triton lists its models at a POST.
    """
    import httpx

    tables = runner.read(("/proc/net/tcp", "/proc/net/tcp6"), _ANSWER_S)
    found = listeners(*(ran.text for ran in tables.values()))
    open_ports = [listener for listener in found if listener.port not in _NEVER_HTTP]
    if not open_ports:
        return ()
    limits = httpx.Timeout(_ANSWER_S, connect=_CONNECT_S)
    plain = httpx.Client(timeout=limits, trust_env=False, verify=False)  # noqa: S501 - http only
    with plain as client, ThreadPoolExecutor(32) as pool:
        answers = pool.map(lambda listener: _recognised(client, listener), open_ports[:_MOST_PORTS])
        pairs = zip(open_ports, answers, strict=False)
        services = {listener.inode: service for listener, service in pairs if service}
    held = owners(set(services))
    return tuple(_with_owner(service, held.get(inode)) for inode, service in services.items())


def _with_owner(service: Service, owner: Owner | None) -> Service:
    if owner is None:
        return service
    return replace(service, owner=owner.command, pid=owner.pid, visible=owner.visible)


def _recognised(client: httpx.Client, listener: Listener) -> Service | None:
    """Return the service that a port answers like; None without HTTP or for another server."""
    import httpx

    url = f"http://{listener.host}:{listener.port}"
    try:
        return _engine_at(client, url, listener.port) or _telemetry_at(client, url, listener.port)
    except (httpx.HTTPError, ValueError):
        return None


def _engine_at(client: httpx.Client, url: str, port: int) -> Service | None:
    asked = client.get(f"{url}/v1/models")
    if asked.status_code in (401, 403):
        return Service(kind="locked", port=port, url=url)
    models, protocol = _openai_models(asked), "openai"
    if not models:
        models, protocol = _triton_models(client.post(f"{url}/v2/repository/index", json={})), "triton"
    return Service(kind="engine", port=port, url=url, models=models, protocol=protocol) if models else None


def _telemetry_at(client: httpx.Client, url: str, port: int) -> Service | None:
    page = client.get(f"{url}/metrics")
    if page.status_code == 200 and _EXPORTER_MARK in page.text:
        return Service(kind="exporter", port=port, url=f"{url}/metrics")
    about = _json(client.get(f"{url}/api/v1/status/buildinfo"))
    if isinstance(about, dict) and about.get("status") == "success":
        return Service(kind="prometheus", port=port, url=url)
    return None


def listed_models(
    url: str, headers: Mapping[str, str], protocol: str, limit_s: float, route: Route = DIRECT
) -> tuple[str, ...]:
    """Return the models that an engine lists; empty if it lists none. Raises `httpx.HTTPError`."""
    from rackgate.engines.client import http_client
    from rackgate.engines.protocols.protocol import protocol_named

    with http_client(url, route, headers=headers, timeout=limit_s) as client:
        if protocol_named(protocol).dialect.family == "triton":
            answer = client.post(f"{url}/v2/repository/index", json={})
            answer.raise_for_status()
            return _triton_models(answer)
        answer = client.get(f"{url}/v1/models")
        answer.raise_for_status()
        return _openai_models(answer)


def _openai_models(answer: httpx.Response) -> tuple[str, ...]:
    body = _json(answer)
    entries = body.get("data") if isinstance(body, dict) else None
    return _named(entries, "id")


def _triton_models(answer: httpx.Response) -> tuple[str, ...]:
    return _named(_json(answer), "name")


def _named(entries: object, key: str) -> tuple[str, ...]:
    if not isinstance(entries, list):
        return ()
    return tuple(str(entry[key]) for entry in entries if isinstance(entry, dict) and entry.get(key))


def _json(answer: httpx.Response) -> object:
    if answer.status_code != 200:
        return None
    try:
        return answer.json()
    except ValueError:
        return None
