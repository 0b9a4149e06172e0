"""A node's dcgm-exporter page as a source."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rackgate.measurement import Reason
from rackgate.telemetry.reading import REQUIRED, Reading, missing_readings

if TYPE_CHECKING:
    import httpx

    from rackgate.target import Node

__all__ = ["ExporterSource", "poll_node"]


def poll_node(client: httpx.Client, node: Node) -> list[Reading]:
    """Return readings of each card of a node; whatever went wrong is their reason."""
    import httpx

    from rackgate.telemetry.dcgm import parse_page

    t_ns = time.perf_counter_ns()
    if node.exporter_url is None:
        return missing_readings(
            node, t_ns, Reason.NOT_CONFIGURED, f"node {node.name} declares no exporter", REQUIRED
        )
    url = node.exporter_url
    try:
        page = client.get(url)
        page.raise_for_status()
        return parse_page(page.text, node, t_ns)
    except httpx.TimeoutException:
        return missing_readings(node, t_ns, Reason.TIMEOUT, f"{url} did not answer in time")
    except httpx.HTTPStatusError as error:
        reason = Reason.NO_PERMISSION if error.response.status_code in (401, 403) else Reason.UNREACHABLE
        return missing_readings(node, t_ns, reason, f"{url} answered {error.response.status_code}")
    except httpx.HTTPError as error:
        return missing_readings(node, t_ns, Reason.UNREACHABLE, f"{url}: {error or type(error).__name__}")
    except ValueError as error:
        return missing_readings(node, t_ns, Reason.UNSUPPORTED, f"{url} is no exporter page: {error}")


class ExporterSource:
    """The cards of one node, read over HTTP."""

    def __init__(self, node: Node, *, timeout_s: float = 2.0) -> None:
        import httpx

        self.name = f"exporter {node.name}"
        self._node = node
        self._client = httpx.Client(timeout=timeout_s, trust_env=False)

    def poll(self) -> list[Reading]:
        """Return the page's readings."""
        return poll_node(self._client, self._node)

    def nothing(self, reason: Reason, detail: str) -> list[Reading]:
        """Return the required fields of each card without a value."""
        return missing_readings(self._node, time.perf_counter_ns(), reason, detail)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
