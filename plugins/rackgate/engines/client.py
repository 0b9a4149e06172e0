"""The HTTP client of all ordinary calls to engines and gateways, and the headers that carry their keys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rackgate.nouns.engine import LaunchFailed
from rackgate.nouns.route import DIRECT, Route, tls_of
from rackgate.nouns.target import EngineSpec

if TYPE_CHECKING:
    import httpx


def client_settings(url: str, route: Route = DIRECT) -> dict[str, Any]:
    """Return what httpx is told of the route to a URL; nothing is taken from the environment.

    A proxy from there would be measured in place of the engine. Authorities are read for https alone,
    since that takes longer than most answers.
    """
    secure = url.startswith("https:")
    return {"verify": tls_of(route) if secure else False, "proxy": route.proxy, "trust_env": False}


def http_client(
    url: str, route: Route = DIRECT, *, headers: Mapping[str, str] | None = None, **settings: Any
) -> httpx.Client:
    """Return a client for one server; `headers` carry the key, `settings` are httpx's own."""
    import httpx

    return httpx.Client(
        headers={**route.headers, **(headers or {})}, **client_settings(url, route), **settings
    )


def key_headers(spec: EngineSpec) -> dict[str, str]:
    """Return the headers of its route, and the one that carries its key.

    Raises `LaunchFailed` if the key's variable is not set.
    """
    if spec.api_key_env is None:
        return dict(spec.route.headers)
    key = os.environ.get(spec.api_key_env, "")
    if not key:
        raise LaunchFailed(
            f"{spec.title}: the environment variable {spec.api_key_env} is not set",
            layer="service",
            hint=f"export {spec.api_key_env} with the engine's key",
        )
    return {**spec.route.headers, "authorization": f"Bearer {key}"}
