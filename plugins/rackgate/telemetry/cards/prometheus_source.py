"""Card source: a Prometheus server that scrapes the rack already; each sample has its own time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rackgate.hosts.tools.nvidia_smi_inventory import ListedCard
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Node
from rackgate.telemetry.cards.dcgm_exporter_page import (
    CardPage,
    card_label,
    listed_cards,
    readings_of,
    samples_by_card,
)
from rackgate.telemetry.reading import Reading, missing_readings

if TYPE_CHECKING:
    import httpx


_SELECTOR = '{__name__=~"DCGM_FI_DEV_.+|(amd_)?(gpu|pcie)_.+"}'
_STALE_S = 60.0
_LONGEST_S = 300.0


class PrometheusProblem(Exception):
    """The server did not answer a query; `reason` says why."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class PrometheusApi:
    """The HTTP API of a server: instant and range queries, and how far its clock is from ours."""

    def __init__(self, url: str, *, timeout_s: float = 5.0, headers: Mapping[str, str] | None = None) -> None:
        import httpx

        self.url = url.rstrip("/")
        self._client = httpx.Client(timeout=timeout_s, trust_env=False, headers=dict(headers or {}))

    def instant(self, query: str, at_s: float | None = None) -> list[dict[str, Any]]:
        """Return the result of a query at one moment; raises PrometheusProblem."""
        return self._ask("query", {"query": query, **({} if at_s is None else {"time": f"{at_s:.3f}"})})

    def range(self, query: str, start_s: float, end_s: float, step_s: float) -> list[dict[str, Any]]:
        """Return the result of a query over time (server's clock, s); raises PrometheusProblem."""
        span = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        return self._ask("query_range", {"query": query, **span})

    def clock_offset_s(self) -> float:
        """Return the server's wall clock minus ours, good to half of a round trip."""
        before = time.time()
        answer = self._ask("query", {"query": "time()"})
        if not answer:
            raise PrometheusProblem(Reason.ABSENT, f"{self.url} did not say what time it is")
        return float(answer[0]) - (before + time.time()) / 2  # type: ignore[arg-type]  # a scalar: [t, "v"]

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _ask(self, path: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
        import httpx

        url = f"{self.url}/api/v1/{path}"
        try:
            answer = self._client.post(url, data=dict(parameters))
        except httpx.TimeoutException as error:
            raise PrometheusProblem(Reason.TIMEOUT, f"{self.url} did not answer in time") from error
        except httpx.HTTPError as error:
            text = f"{self.url}: {error or type(error).__name__}"
            raise PrometheusProblem(Reason.UNREACHABLE, text) from error
        return _result(answer, self.url)


def _result(answer: httpx.Response, url: str) -> list[dict[str, Any]]:
    if answer.status_code in (401, 403):
        raise PrometheusProblem(Reason.NO_PERMISSION, f"{url} answered {answer.status_code}")
    try:
        body = answer.json()
        if body["status"] != "success":
            raise PrometheusProblem(Reason.UNSUPPORTED, f"{url}: {body.get('error', 'no reason given')}")
        return list(body["data"]["result"])
    except (ValueError, KeyError, TypeError) as error:
        text = f"{url} answered {answer.status_code} and no Prometheus result"
        raise PrometheusProblem(Reason.UNSUPPORTED, text) from error


class PrometheusSource:
    """Readings of all cards of some nodes; every scrape that is new since the last poll, with its time.

    A series belongs to a node by a declared card's UUID, by the host name in its labels, or by the
    `instance` that is the address of the node's exporter. `instances` names it where it is neither.
    """

    def __init__(
        self,
        url: str,
        nodes: Sequence[Node],
        *,
        timeout_s: float = 5.0,
        headers: Mapping[str, str] | None = None,
        instances: Mapping[str, str] | None = None,
        look_back_s: float = 15.0,
    ) -> None:
        self.name = f"prometheus {url}"
        self.clock_offset_s: float | None = None
        self._api = PrometheusApi(url, timeout_s=timeout_s, headers=headers)
        self._nodes = tuple(nodes)
        self._instances = dict(instances or {})
        self._look_back_s = look_back_s
        self._newest: dict[str, float] = {}
        self._pages: dict[str, CardPage] = {}

    def poll(self) -> list[Reading]:
        """Return the scrapes since the last poll; of a node whose scrapes stopped, that they are stale."""
        try:
            self.clock_offset_s = self._api.clock_offset_s()
            now_s = time.time() + self.clock_offset_s
            span_s = self._span_s(now_s)
            return self._readings(self._api.instant(f"{_SELECTOR}[{span_s:.0f}s]"), now_s)
        except PrometheusProblem as problem:
            return self.nothing(problem.reason, str(problem))

    def history(self, start_ns: int, end_ns: int) -> list[Reading]:
        """Return every scrape between two moments of our monotonic clock; raises PrometheusProblem."""
        offset_s = self._api.clock_offset_s()
        self.clock_offset_s = offset_s
        wall_s = time.time() - time.perf_counter_ns() / 1e9 + offset_s
        span_s = (end_ns - start_ns) / 1e9
        result = self._api.instant(f"{_SELECTOR}[{max(1.0, span_s):.0f}s]", end_ns / 1e9 + wall_s)
        scrapes = self._scrapes(result)
        return [
            one for node, at_s in sorted(scrapes) for one in self._scrape(node, at_s, scrapes[node, at_s])
        ]

    def listed(self) -> tuple[ListedCard, ...] | None:
        """Return every card of the nodes that a scrape told of; None if none did."""
        return listed_cards(self._pages) or None

    def nothing(self, reason: Reason, detail: str) -> list[Reading]:
        """Return the required fields of each card without a value."""
        t_ns = time.perf_counter_ns()
        return [one for node in self._nodes for one in missing_readings(node, t_ns, reason, detail)]

    def close(self) -> None:
        """Close the connection."""
        self._api.close()

    def _span_s(self, now_s: float) -> float:
        oldest = min((self._newest.get(node.name, 0.0) for node in self._nodes), default=0.0)
        return min(_LONGEST_S, max(self._look_back_s, now_s - oldest + 1.0)) if oldest else self._look_back_s

    def _readings(self, result: list[dict[str, Any]], now_s: float) -> list[Reading]:
        scrapes = self._scrapes(result)
        readings: list[Reading] = []
        for node in self._nodes:
            seen = self._newest.get(node.name, 0.0)
            moments = sorted(at_s for name, at_s in scrapes if name == node.name and at_s > seen)
            for at_s in moments:
                readings += self._scrape(node.name, at_s, scrapes[node.name, at_s])
            newest = moments[-1] if moments else seen
            self._newest[node.name] = newest
            if not moments and now_s - newest > _STALE_S:
                reason, text = (
                    Reason.STALE,
                    f"the newest scrape of node {node.name} is {now_s - newest:.0f} s old",
                )
                if not newest:
                    reason, text = Reason.ABSENT, f"{self.name} has no series of node {node.name}'s cards"
                readings += missing_readings(node, time.perf_counter_ns(), reason, text)
        return readings

    def _scrape(
        self, name: str, at_s: float, samples: list[tuple[Mapping[str, str], str, float]]
    ) -> list[Reading]:
        node = next(one for one in self._nodes if one.name == name)
        wall_to_monotonic_ns = time.perf_counter_ns() - time.time_ns()
        t_ns = round((at_s - (self.clock_offset_s or 0.0)) * 1e9) + wall_to_monotonic_ns
        pages = samples_by_card(samples)
        self._pages |= pages
        return readings_of(pages, node, t_ns, "Prometheus")

    def _scrapes(
        self, result: list[dict[str, Any]]
    ) -> dict[tuple[str, float], list[tuple[Mapping[str, str], str, float]]]:
        """Return the samples of each scrape: those of one node with one time stamp."""
        scrapes: dict[tuple[str, float], list[tuple[Mapping[str, str], str, float]]] = defaultdict(list)
        for series in result:
            labels = series.get("metric", {})
            node = self._node_of(labels)
            if node is None:
                continue
            name = labels.get("__name__", "").removesuffix("_total").removesuffix("_TOTAL")
            for at_s, value in series.get("values", []):
                scrapes[node.name, float(at_s)].append((labels, name, float(value)))
        return scrapes

    def _node_of(self, labels: Mapping[str, str]) -> Node | None:
        uuid, host, instance = card_label(labels, "uuid"), card_label(labels, "host"), labels.get("instance")
        for node in self._nodes:
            if uuid and any(card.uuid == uuid for card in node.cards):
                return node
        for node in self._nodes:
            address = urlsplit(node.exporter_url).netloc if node.exporter_url else None
            wanted = self._instances.get(node.name)
            if (instance and instance in (address, wanted)) or (wanted is None and host == node.name):
                return node
        return None
