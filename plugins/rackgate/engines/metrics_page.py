"""Where an engine tells its own counters: as the target says, else as its kind usually does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from rackgate.engines.catalogue import catalogue, kind_of
from rackgate.engines.client import key_headers
from rackgate.nouns.engine import LaunchFailed
from rackgate.nouns.route import DIRECT, Route
from rackgate.nouns.target import EngineSpec

_USUAL = "/metrics"
_OWN_PORT = re.compile(r":(\d+)(/.*)")


def metrics_page(spec: EngineSpec) -> MetricsPage | None:
    """Return the address of an engine's metrics page, its key's headers and the route; None if it has none.

    Key and route are for the engine's own host only.
    """
    url = metrics_url(spec)
    if url is None:
        return None
    try:
        headers = key_headers(spec)
    except LaunchFailed:  # the key's variable is not set: the page says 401 if it asks for one
        headers = {}
    if urlsplit(url).hostname != urlsplit(spec.url or "").hostname:
        return MetricsPage(url=url, headers={})
    return MetricsPage(url=url, headers=headers, route=spec.route)


def written_metrics(spec: EngineSpec) -> str:
    """Return `spec.metrics`, else what the catalogue says of its kind; "" for an engine without a page."""
    if spec.metrics is not None:
        return spec.metrics
    entry = kind_of(spec.settings)
    if entry is None and spec.protocol == "triton":
        entry = catalogue()["triton"]
    return (entry.metrics_path or "") if entry is not None else _USUAL


def own_metrics_port(spec: EngineSpec) -> tuple[int, str] | None:
    """Return port and path of a metrics page that has a port of its own; None for any other."""
    found = _OWN_PORT.fullmatch(written_metrics(spec))
    return (int(found[1]), found[2]) if found else None


def metrics_url(spec: EngineSpec) -> str | None:
    """Return the address of the page: what is written is a path, `:PORT/PATH` or a whole address."""
    written = written_metrics(spec)
    if spec.url is None or not written:
        return None
    if "://" in written:
        return written
    if written.startswith(":"):
        parts = urlsplit(spec.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}{written}"
    return f"{spec.url.rstrip('/')}{written}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsPage:
    """Where an engine tells its counters, and by which route; `headers` may carry a key."""

    url: str
    headers: Mapping[str, str]
    route: Route = DIRECT
