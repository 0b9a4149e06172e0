"""The one way in which ordinary calls to engines and gateways get their HTTP client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rackgate.nouns.route import DIRECT, Route, tls_of

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
