"""Polls every node's exporter in threads of their own and keeps what they say, part by part, on disk."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rackgate.measurement import Reason
from rackgate.telemetry.reading import FIELDS, Reading
from rackgate.telemetry.table import TelemetryTable

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from rackgate.target import Node

__all__ = ["Sampler", "poll_node"]

_KEPT_READINGS = 200_000


def poll_node(client: httpx.Client, node: Node) -> list[Reading]:
    """Return one reading for each card and field of a node; whatever went wrong is their reason."""
    import httpx

    from rackgate.telemetry.dcgm import parse_page

    t_ns = time.perf_counter_ns()
    if node.exporter_url is None:
        return _nothing(node, t_ns, Reason.NOT_CONFIGURED, f"node {node.name} declares no exporter")
    try:
        page = client.get(node.exporter_url)
        page.raise_for_status()
        return parse_page(page.text, node, t_ns)
    except httpx.TimeoutException:
        return _nothing(node, t_ns, Reason.TIMEOUT, f"{node.exporter_url} did not answer in time")
    except httpx.HTTPStatusError as error:
        return _nothing(
            node, t_ns, Reason.UNREACHABLE, f"{node.exporter_url} answered {error.response.status_code}"
        )
    except httpx.HTTPError as error:
        return _nothing(
            node, t_ns, Reason.UNREACHABLE, f"{node.exporter_url}: {error or type(error).__name__}"
        )
    except ValueError as error:
        return _nothing(node, t_ns, Reason.UNSUPPORTED, f"{node.exporter_url} is no exporter page: {error}")


def _nothing(node: Node, t_ns: int, reason: Reason, detail: str) -> list[Reading]:
    return [
        Reading(t_ns, node.name, card.name, field, None, reason, detail)
        for card in node.cards
        for field in FIELDS
    ]


class Sampler:
    """Samples all nodes every `interval_s` from `start` to `stop`; memory is bounded by writing parts."""

    def __init__(
        self, nodes: tuple[Node, ...], folder: Path, *, interval_s: float, timeout_s: float = 2.0
    ) -> None:
        self._nodes = nodes
        self._folder = folder
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._recent: list[Reading] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._parts: list[tuple[int, int, Path]] = []
        self._written = 0
        self.last_sample_ns = 0
        self._thread = threading.Thread(target=self._run, name="rackgate-telemetry", daemon=True)

    @property
    def interval_s(self) -> float:
        """Seconds between two samples of a signal."""
        return self._interval_s

    def start(self) -> None:
        """Begin sampling."""
        self._thread.start()

    def stop(self) -> None:
        """End sampling and write what is left; safe to call twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=self._timeout_s + self._interval_s + 5.0)
        self.flush()

    def flush(self) -> None:
        """Write the readings that are not on disk yet as one more part."""
        with self._lock:
            fresh = self._recent[self._written :]
            if fresh:
                self._folder.mkdir(parents=True, exist_ok=True)
                path = self._folder / f"part-{len(self._parts):04d}.parquet"
                TelemetryTable.from_readings(fresh).write(path)
                self._parts.append((fresh[0].t_ns, fresh[-1].t_ns, path))
            self._recent = self._recent[-_KEPT_READINGS:]
            self._written = len(self._recent)

    def window(self, start_ns: int, end_ns: int) -> TelemetryTable:
        """Return all readings between two moments, with one interval of margin on each side."""
        margin_ns = round(self._interval_s * 1.5e9)
        begin, end = start_ns - margin_ns, end_ns + margin_ns
        with self._lock:
            recent = list(self._recent)
            oldest = recent[0].t_ns if recent else end
            parts = [
                path for first, last, path in self._parts if first < oldest and last >= begin and first <= end
            ]
        older = [one for path in parts for one in TelemetryTable.read(path).readings if one.t_ns < oldest]
        return TelemetryTable.from_readings(one for one in (*older, *recent) if begin <= one.t_ns <= end)

    def _run(self) -> None:
        import httpx

        started = time.perf_counter()
        ticks = 0
        with httpx.Client(timeout=self._timeout_s, trust_env=False) as client, ThreadPoolExecutor(16) as pool:
            while not self._stopping.is_set():
                for readings in pool.map(lambda node: poll_node(client, node), self._nodes):
                    with self._lock:
                        self._recent += readings
                self.last_sample_ns = time.perf_counter_ns()
                if len(self._recent) - self._written > _KEPT_READINGS:
                    self.flush()
                ticks = max(ticks + 1, int((time.perf_counter() - started) / self._interval_s))
                self._stopping.wait(max(0.0, started + ticks * self._interval_s - time.perf_counter()))
