"""The gateway as an engine's launcher starts it: behind it the engines of this run, wherever they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from rackgate.engines.gateway_backends import with_backends
from rackgate.nouns.engine import Engine
from rackgate.nouns.target import GATEWAY, EngineSpec, Target


def gateway_spec(target: Target) -> EngineSpec | None:
    """Return what is launched, with the words of the target file; None where nothing is to be started."""
    gateway = target.gateway
    if gateway is None or not gateway.started:
        return None
    return EngineSpec(
        name=GATEWAY,
        launcher=gateway.launcher,
        model=target.model,
        pool="cpu",
        api_key_env=gateway.api_key_env,
        route=gateway.route,
        settings=gateway.settings,
    )


def unreachable(spec: EngineSpec, engines: Mapping[str, Engine]) -> str:
    """Return the engine that a gateway in a container cannot reach, where that is plain; empty if none is.

    On a network of its own, 127.0.0.1 is the container itself.
    """
    settings = spec.settings
    if spec.launcher != "container" or settings.get("network") == "host":
        return ""
    for entity, engine in engines.items():
        if urlsplit(engine.url).hostname in ("127.0.0.1", "::1", "localhost"):
            return f"a container does not reach {entity} at {engine.url}"
    return ""


def with_engines_behind(spec: EngineSpec, target: Target, engines: Mapping[str, Engine]) -> EngineSpec:
    """Return the gateway's spec with the addresses of the engines that came up filled in."""
    urls = {one.name: engines[one.entity].url if one.entity in engines else None for one in target.engines}
    return replace(spec, settings=with_backends(spec.settings, urls))
