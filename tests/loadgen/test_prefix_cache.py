"""How much of a load's prompts must have come from a cache, by the engine's own counters."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.engines.metrics_page import MetricsPage
from rackgate.loadgen.engine_counters import (
    PrefixCounters,
    fetch_engine_pages,
    least_cached_share,
    prefix_counters,
    prefix_counters_between,
)
from rackgate.nouns.load import Load
from rackgate.telemetry.engine_metrics import EnginePage

LOAD = Load(name="l", prompt_tokens=100, output_tokens=4, looks=(10,))
PAGE = (
    b"# TYPE vllm:prefix_cache_queries_total counter\nvllm:prefix_cache_queries_total 1000.0\n"
    b"# TYPE vllm:prefix_cache_hits_total counter\nvllm:prefix_cache_hits_total 400.0\n"
)


def counted(queries, hits):
    return PrefixCounters(queries=queries, hits=hits)


def page(queries, hits):
    return EnginePage({"prefix_cache_queries": queries, "prefix_cache_hits": hits}, None)


def test_what_an_engine_looked_up_and_found_is_told_by_its_page(reply):
    body = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (len(PAGE), PAGE)
    url = reply(body).url
    missing = reply(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").url
    pages = {name: MetricsPage(url=at, headers={}) for name, at in (("a", url), ("b", missing))}
    pages["c"] = MetricsPage(url="http://127.0.0.1:9/metrics", headers={})
    assert {"a": counted(1000.0, 400.0), "b": None, "c": None} == {
        name: prefix_counters(page) for name, page in fetch_engine_pages(pages).items()
    }


def test_an_engine_that_restarted_or_did_not_tell_is_left_out():
    before = {"a": page(10, 5), "b": page(10, 5), "c": None}
    after = {"a": page(30, 6), "b": page(3, 0), "c": page(9, 9), "d": page(1, 1)}
    assert {"a": counted(20, 1)} == prefix_counters_between(before, after)


def test_repeated_prompts_are_seen_and_a_chat_template_is_not_held_against_the_engine():
    assert 0.9 == least_cached_share([counted(1000, 900)], LOAD, 10)
    assert 0.0 == least_cached_share([counted(1700, 700)], LOAD, 10)  # 70 tokens of template, each found
    assert 1.0 == least_cached_share([counted(1700, 1700)], LOAD, 10)
    short = replace(LOAD, prompt_tokens=8)
    assert 0.0 == least_cached_share([counted(780, 640)], short, 10)


@pytest.mark.parametrize(
    "load",
    [
        replace(LOAD, shared_prefix_tokens=20),
        replace(LOAD, turns=2),
        replace(LOAD, trace="t.jsonl"),
        replace(LOAD, repeats=2),
    ],
)
def test_a_load_that_shares_prompts_may_hit_caches(load):
    assert least_cached_share([counted(1000, 900)], load, 10) is None


def test_nothing_is_said_where_nothing_was_counted():
    assert least_cached_share([], LOAD, 10) is None
    assert least_cached_share([counted(0, 0)], LOAD, 0) is None


@given(
    requests=st.integers(1, 500),
    own_hits=st.floats(0, 1),
    others=st.integers(0, 10_000),
    others_hits=st.floats(0, 1),
)
def test_it_never_says_more_than_there_was_whoever_else_asked(requests, own_hits, others, others_hits):
    own = LOAD.prompt_tokens * requests
    told = counted(own + others, own * own_hits + others * others_hits)
    least = least_cached_share([told], LOAD, requests)
    assert least is not None
    assert 0 <= least <= own_hits + 1e-9
