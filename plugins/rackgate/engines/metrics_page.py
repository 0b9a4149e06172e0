"""Where an engine tells its own counters: as the target says, else as its kind usually does."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rackgate.engine import LaunchFailed
from rackgate.engines.catalogue import catalogue
from rackgate.engines.launchers.outcome import key_headers
from rackgate.loadgen.prefix_cache import MetricsPage

if TYPE_CHECKING:
    from rackgate.target import EngineSpec

__all__ = ["metrics_page", "metrics_url"]

_USUAL = "/metrics"


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


def metrics_url(spec: EngineSpec) -> str | None:
    """Return the address: `spec.metrics` or the catalogue's path, `:PORT/PATH` or whole address."""
    if spec.url is None:
        return None
    entry = catalogue().get(str(spec.settings.get("engine", "")))
    if entry is None and spec.protocol == "triton":
        entry = catalogue()["triton"]
    usual = entry.metrics_path if entry is not None else _USUAL
    written = usual if spec.metrics is None else spec.metrics
    if not written:
        return None
    if "://" in written:
        return written
    if written.startswith(":"):
        parts = urlsplit(spec.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}{written}"
    return f"{spec.url.rstrip('/')}{written}"
