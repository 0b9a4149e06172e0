"""Engine metrics pages: queue, cache, tokens, and the engine's own time to first token."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rackgate.nouns.measurement import Reason
from rackgate.nouns.route import DIRECT, Route
from rackgate.telemetry.engine_names import NAMES, TTFT_HISTOGRAMS
from rackgate.telemetry.reading import Reading

if TYPE_CHECKING:
    from prometheus_client.samples import Sample


_FIELDS = ("requests_running", "requests_waiting", "kv_cache_use", "generation_tokens")
_HIGHEST = frozenset({"kv_cache_use"})


@dataclass(frozen=True, slots=True)
class TtftHistogram:
    """Cumulative counts by upper edge in seconds (the last is infinity) and the sum of all times."""

    edges_s: tuple[float, ...]
    counts: tuple[float, ...]
    sum_s: float

    def since(self, before: TtftHistogram) -> TtftHistogram | None:
        """Return what came after `before`; None if the edges differ or a counter fell (a restart)."""
        counts = tuple(now - then for now, then in zip(self.counts, before.counts, strict=False))
        if self.edges_s != before.edges_s or min(counts, default=-1) < 0:
            return None
        return TtftHistogram(self.edges_s, counts, self.sum_s - before.sum_s)

    def plus(self, other: TtftHistogram) -> TtftHistogram | None:
        """Return both together; None if the edges differ."""
        counts = tuple(one + two for one, two in zip(self.counts, other.counts, strict=False))
        return (
            TtftHistogram(self.edges_s, counts, self.sum_s + other.sum_s)
            if self.edges_s == other.edges_s
            else None
        )

    @property
    def count(self) -> float:
        """Requests in it."""
        return self.counts[-1] if self.counts else 0.0

    def quantile_bounds_s(self, share: float, *, slack: float = 0.0) -> tuple[float, float] | None:
        """Return the edges between which the quantile lies, give or take `slack` ranks; None if empty."""
        if self.count <= 0:
            return None
        lowest = self._place(max(0.0, share * self.count - slack))
        highest = self._place(min(self.count, share * self.count + slack))
        return (self.edges_s[lowest - 1] if lowest else 0.0), self.edges_s[highest]

    def _place(self, rank: float) -> int:
        return next(number for number, count in enumerate(self.counts) if count >= rank)


@dataclass(frozen=True, slots=True)
class EnginePage:
    """Values by our names, and the histogram of first tokens if there is one."""

    values: Mapping[str, float]
    ttft: TtftHistogram | None


def parse_engine_page(text: str) -> EnginePage:
    """Return what a page of any known engine says; raises ValueError if the text is no page.

    Counters of several series (data-parallel ranks, finish reasons) are added, of shares the highest is
    taken.
    """
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[str, float] = {}
    buckets: dict[float, float] = {}
    sum_s = 0.0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            base, _, suffix = sample.name.rpartition("_")
            if base in TTFT_HISTOGRAMS:
                if suffix == "bucket":
                    edge = float(sample.labels["le"])
                    buckets[edge] = buckets.get(edge, 0.0) + sample.value
                elif suffix == "sum":
                    sum_s += sample.value
                continue
            _add(values, sample)
    edges = tuple(sorted(buckets))
    ttft = TtftHistogram(edges, tuple(buckets[edge] for edge in edges), sum_s) if edges else None
    if ttft is not None:
        values |= {"server_ttft_count": ttft.count, "server_ttft_sum_s": sum_s}
    return EnginePage(values, ttft)


def _add(values: dict[str, float], sample: Sample) -> None:
    name = sample.name.removesuffix("_total")
    if not math.isfinite(sample.value):
        return
    for known, (field, labels) in NAMES.items():
        if known.split("#")[0] != name or any(sample.labels.get(key) != value for key, value in labels):
            continue
        if field in _HIGHEST:
            values[field] = max(values.get(field, 0.0), sample.value)
        else:
            values[field] = values.get(field, 0.0) + sample.value


class EngineMetricsSource:
    """Readings of one engine."""

    def __init__(
        self,
        entity: str,
        node: str,
        url: str,
        *,
        timeout_s: float = 2.0,
        headers: Mapping[str, str] | None = None,
        route: Route = DIRECT,
    ) -> None:
        from rackgate.engines.client import http_client

        self.name = f"engine metrics {entity}"
        self._entity = entity
        self._node = node
        self._url = url
        self._client = http_client(url, route, headers=headers, timeout=timeout_s)

    def poll(self) -> list[Reading]:
        """Return every known field of the page, or why there is none."""
        import httpx

        t_ns = time.perf_counter_ns()
        try:
            answer = self._client.get(self._url)
            answer.raise_for_status()
            page = parse_engine_page(answer.text)
        except httpx.TimeoutException:
            return self.nothing(Reason.TIMEOUT, f"{self._url} did not answer in time")
        except httpx.HTTPStatusError as error:
            code = error.response.status_code
            denied = code in (401, 403)
            reason = (
                Reason.NO_PERMISSION if denied else Reason.UNSUPPORTED if code == 404 else Reason.UNREACHABLE
            )
            return self.nothing(reason, f"{self._url} answered {code}")
        except httpx.HTTPError as error:
            return self.nothing(Reason.UNREACHABLE, f"{self._url}: {error or type(error).__name__}")
        except ValueError as error:
            return self.nothing(Reason.UNSUPPORTED, f"{self._url} is no metrics page: {error}")
        if not page.values:
            return self.nothing(Reason.UNSUPPORTED, f"{self._url} has no metric of an engine that we know")
        return [Reading(t_ns, self._node, self._entity, field, value) for field, value in page.values.items()]

    def nothing(self, reason: Reason, detail: str) -> list[Reading]:
        """Return the fields that every engine has, without a value."""
        t_ns = time.perf_counter_ns()
        return [Reading(t_ns, self._node, self._entity, field, None, reason, detail) for field in _FIELDS]

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
