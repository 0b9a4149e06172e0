"""Card source: a node's dcgm-exporter page over HTTP."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rackgate.hosts.tools.nvidia_smi_inventory import ListedCard
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Node
from rackgate.telemetry.cards.dcgm_exporter_page import CardPage
from rackgate.telemetry.reading import Reading, missing_readings

if TYPE_CHECKING:
    import httpx


class _Silent(Exception):
    """There is no page; `reason` says why."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def _pages(client: httpx.Client, node: Node) -> Mapping[str, CardPage]:
    """Return what the node's page says of each card; raises _Silent."""
    import httpx

    from rackgate.telemetry.cards.dcgm_exporter_page import pages_of

    url = node.exporter_url
    if url is None:
        raise _Silent(Reason.NOT_CONFIGURED, f"node {node.name} declares no exporter")
    try:
        page = client.get(url)
        page.raise_for_status()
        return pages_of(page.text)
    except httpx.TimeoutException as error:
        raise _Silent(Reason.TIMEOUT, f"{url} did not answer in time") from error
    except httpx.HTTPStatusError as error:
        reason = Reason.NO_PERMISSION if error.response.status_code in (401, 403) else Reason.UNREACHABLE
        raise _Silent(reason, f"{url} answered {error.response.status_code}") from error
    except httpx.HTTPError as error:
        raise _Silent(Reason.UNREACHABLE, f"{url}: {error or type(error).__name__}") from error
    except ValueError as error:
        raise _Silent(Reason.UNSUPPORTED, f"{url} is no exporter page: {error}") from error


class ExporterSource:
    """The cards of one node, read over HTTP."""

    def __init__(self, node: Node, *, timeout_s: float = 2.0) -> None:
        import httpx

        self.name = f"exporter {node.name}"
        self._pages: Mapping[str, CardPage] | None = None
        self._node = node
        self._client = httpx.Client(timeout=timeout_s, trust_env=False)

    def poll(self) -> list[Reading]:
        """Return the page's readings; whatever went wrong is the reason of readings without a value."""
        from rackgate.telemetry.cards.dcgm_exporter_page import readings_of

        t_ns = time.perf_counter_ns()
        try:
            self._pages = _pages(self._client, self._node)
        except _Silent as silent:
            self._pages = None
            return missing_readings(self._node, t_ns, silent.reason, str(silent))
        return readings_of(self._pages, self._node, t_ns, "the exporter")

    def listed(self) -> tuple[ListedCard, ...] | None:
        """Return every card of the latest page, declared or not; None if there was no page."""
        from rackgate.telemetry.cards.dcgm_exporter_page import listed_cards

        return None if self._pages is None else listed_cards(self._pages)

    def nothing(self, reason: Reason, detail: str) -> list[Reading]:
        """Return the required fields of each card without a value."""
        return missing_readings(self._node, time.perf_counter_ns(), reason, detail)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
