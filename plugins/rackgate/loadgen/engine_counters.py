"""Counters of the engines under load, read from their metrics pages before and after it.

Prefix-cache counters say how many prompt tokens came from a cache; the TTFT histogram is the engine's own
view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rackgate.engines.metrics_page import MetricsPage
from rackgate.nouns.load import Load
from rackgate.telemetry.engine_metrics import EnginePage, TtftHistogram

MAX_CACHED_SHARE = 0.25
"""The largest share of prompt tokens from a cache in a load whose prompts share nothing."""

_TIMEOUT_S = 2.0
_MAX_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCounters:
    """Prompt tokens that an engine looked up in its prefix cache (`queries`) and found there (`hits`)."""

    queries: float
    hits: float

    def since(self, before: PrefixCounters) -> PrefixCounters | None:
        """Return the difference to `before`; None if a counter fell, which is a restart."""
        queries, hits = self.queries - before.queries, self.hits - before.hits
        return PrefixCounters(queries=queries, hits=hits) if min(queries, hits) >= 0 else None


def fetch_engine_page(page: MetricsPage) -> EnginePage | None:
    """Return the parsed metrics page of an engine, None if it cannot be read."""
    import httpx

    from rackgate.engines.client import http_client
    from rackgate.telemetry.engine_metrics import parse_engine_page

    try:
        with http_client(page.url, page.route, headers=page.headers, timeout=_TIMEOUT_S) as client:
            answer = client.get(page.url)
        return parse_engine_page(answer.text) if answer.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None


def fetch_engine_pages(pages: Mapping[str, MetricsPage]) -> dict[str, EnginePage | None]:
    """Return the metrics page of each engine, fetched concurrently."""
    with ThreadPoolExecutor(max_workers=max(1, min(_MAX_THREADS, len(pages)))) as pool:
        return dict(zip(pages, pool.map(fetch_engine_page, pages.values()), strict=True))


def prefix_counters(page: EnginePage | None) -> PrefixCounters | None:
    """Return the prefix-cache counters of a page, None if it has none that we know."""
    values = page.values if page is not None else {}
    if "prefix_cache_queries" not in values or "prefix_cache_hits" not in values:
        return None
    return PrefixCounters(queries=values["prefix_cache_queries"], hits=values["prefix_cache_hits"])


def prefix_counters_between(
    before: Mapping[str, EnginePage | None], after: Mapping[str, EnginePage | None]
) -> dict[str, PrefixCounters]:
    """Return each engine's counts between two readings, without engines that have none or restarted."""
    found = {}
    for engine, page in after.items():
        now, then = prefix_counters(page), prefix_counters(before.get(engine))
        difference = now.since(then) if now is not None and then is not None else None
        if difference is not None:
            found[engine] = difference
    return found


def least_cached_share(counted: Iterable[PrefixCounters], load: Load, requests: int) -> float | None:
    """Return the least share of the load's own prompt tokens that came from a prefix cache.

    All tokens that were looked up beyond the load's own (chat template, warm-up, other users) may have been
    found, so they are subtracted. None if nothing was counted, or if the load shares prompts by design.
    """
    counters = list(counted)
    shares = load.shared_prefix_tokens or load.turns > 1 or load.trace is not None or load.repeats > 1
    own = float(load.prompt_tokens * requests)
    if not counters or shares or not own:
        return None
    hits, queries = sum(one.hits for one in counters), sum(one.queries for one in counters)
    return min(1.0, max(0.0, hits - max(0.0, queries - own)) / own)


def ttft_histograms_between(
    before: Mapping[str, EnginePage | None], after: Mapping[str, EnginePage | None]
) -> dict[str, TtftHistogram]:
    """Return each engine's TTFT histogram between two readings, without engines that restarted."""
    found = {}
    for engine, now in after.items():
        then = before.get(engine)
        if now is None or then is None or now.ttft is None or then.ttft is None:
            continue
        difference = now.ttft.since(then.ttft)
        if difference is not None:
            found[engine] = difference
    return found


def histogram_entry(histogram: TtftHistogram) -> dict[str, Any]:
    """Return the record entry of a histogram."""
    return {
        "edges_s": list(histogram.edges_s),
        "counts": list(histogram.counts),
        "sum_s": histogram.sum_s,
    }


def histogram_of(entry: Mapping[str, Any]) -> TtftHistogram:
    """Return the histogram of a record entry; infinity is "inf". Raises `KeyError`, `ValueError`."""
    return TtftHistogram(
        tuple(float(edge) for edge in entry["edges_s"]),
        tuple(float(count) for count in entry["counts"]),
        float(entry["sum_s"]),
    )
