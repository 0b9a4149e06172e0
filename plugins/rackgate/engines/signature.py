"""Whether two engines are the same server, so that one can serve the loads of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from rackgate.engines.catalogue import kind_of
from rackgate.engines.launchers.filling import with_defaults
from rackgate.nouns.engine import Engine
from rackgate.nouns.target import EngineSpec

_NOT_OF_THE_SERVER = (
    "ready_timeout_s",
    "stop_timeout_s",
    "pull",
    "host_port",
    "engine",
    "extra_args",
    "model_path",
)
"""Keys that say how it is waited for, or that stand in the command already."""


def signature(spec: EngineSpec, image_digest: str | None = None) -> str:
    """Return a digest that is equal for engines of the same image, command, environment and cards.

    Without `image_digest` the image counts by its name. Names of secrets count, their values do not. A
    server that is used again keeps its prefix cache: reset it, or offer it prompts with a fresh salt.
    """
    boxed = spec.launcher in ("container", "kubernetes")
    settings = with_defaults(spec.settings, boxed=boxed, cards=len(spec.cards))
    kept = {name: value for name, value in settings.items() if name not in _NOT_OF_THE_SERVER}
    kept["model_path"] = settings.get("model_path", spec.model)
    if image_digest is not None:
        kept["image"] = image_digest
    facts = {
        "launcher": spec.launcher,
        "model": spec.model,
        "protocol": spec.protocol,
        "url": spec.url,
        "cards": [[member.node, member.role, list(member.cards)] for member in spec.members],
        "settings": kept,
    }
    text = json.dumps(facts, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else list(value)  # type: ignore[call-overload]  # a tuple


def reset_prefix_cache(engine: Engine, limit_s: float = 10.0) -> bool:
    """Ask the engine to forget its prefix cache; return whether it said that it did.

    False for an engine whose catalogue entry has no such path, or that does not offer it as it was
    started: then only freshly salted prompts make two loads comparable.
    """
    entry = kind_of(engine.spec.settings)
    if entry is None or not entry.cache_reset_path:
        return False
    import httpx

    from rackgate.engines.client import http_client

    try:
        with http_client(engine.url, engine.spec.route, headers=engine.headers, timeout=limit_s) as client:
            answer = client.post(f"{engine.url}{entry.cache_reset_path}")
    except httpx.HTTPError:
        return False
    return answer.status_code == 200
