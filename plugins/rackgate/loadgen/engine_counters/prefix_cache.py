"""What engines themselves count in their prefix caches: prompt tokens looked up, and found there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rackgate.engines.metrics_page import MetricsPage
from rackgate.nouns.load import Load
from rackgate.telemetry.engine_metrics import EnginePage

MOST_FROM_CACHE = 0.25
"""Of a load whose prompts share nothing: what an engine may take from its cache and still be measured."""

_LIMIT_S = 2.0
_WIDTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCounters:
    """An engine's own counts of tokens looked up in its prefix cache and found there."""

    queries: float
    hits: float

    def since(self, before: PrefixCounters) -> PrefixCounters | None:
        """Return what came after `before`; None if a counter fell, which is a restart."""
        queries, hits = self.queries - before.queries, self.hits - before.hits
        return PrefixCounters(queries=queries, hits=hits) if min(queries, hits) >= 0 else None


def engine_page(page: MetricsPage) -> EnginePage | None:
    """Return what one engine's page says, None if it cannot be read."""
    import httpx

    from rackgate.engines.client import http_client
    from rackgate.telemetry.engine_metrics import parse_engine_page

    try:
        with http_client(page.url, page.route, headers=page.headers, timeout=_LIMIT_S) as client:
            answer = client.get(page.url)
        return parse_engine_page(answer.text) if answer.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None


def counters_of(page: EnginePage | None) -> PrefixCounters | None:
    """Return the counters of a page that was read, None if it has none that we know."""
    values = page.values if page is not None else {}
    if "prefix_cache_queries" not in values or "prefix_cache_hits" not in values:
        return None
    return PrefixCounters(queries=values["prefix_cache_queries"], hits=values["prefix_cache_hits"])


def read_pages(pages: Mapping[str, MetricsPage]) -> dict[str, EnginePage | None]:
    """Return the page of each engine, all asked at once."""
    with ThreadPoolExecutor(max_workers=max(1, min(_WIDTH, len(pages)))) as pool:
        return dict(zip(pages, pool.map(engine_page, pages.values()), strict=True))


def counters_meanwhile(
    before: Mapping[str, EnginePage | None], after: Mapping[str, EnginePage | None]
) -> dict[str, PrefixCounters]:
    """Return what each engine counted between two readings, without those that did not tell or restarted."""
    found = {}
    for engine, page in after.items():
        now, then = counters_of(page), counters_of(before.get(engine))
        meanwhile = now.since(then) if now is not None and then is not None else None
        if meanwhile is not None:
            found[engine] = meanwhile
    return found


def least_from_cache(counted: Iterable[PrefixCounters], load: Load, requests: int) -> float | None:
    """Return the least share of the load's own prompt tokens that must have come from a prefix cache.

    What was looked up beyond the load's own tokens (a chat template, warm-up, other users) may all have
    been found. None if nothing was counted, or if the load shares prompts by itself: then hits are meant.
    """
    told = list(counted)
    shares = load.shared_prefix_tokens or load.turns > 1 or load.trace is not None or load.repeats > 1
    own = float(load.prompt_tokens * requests)
    if not told or shares or not own:
        return None
    hits, queries = sum(one.hits for one in told), sum(one.queries for one in told)
    return min(1.0, max(0.0, hits - max(0.0, queries - own)) / own)
