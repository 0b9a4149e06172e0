"""Gaps between chunks, by a histogram that keeps no gap, against all of them by brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.loadgen.results import sample_file
from rackgate.loadgen.results.offered_load import Counters, OfferedLoad
from rackgate.loadgen.results.sample_file import read_samples, write_samples
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.metrics.requests.gaps import chunk_gap_ms
from rackgate.metrics.requests.latency import time_to_first_answer_ms
from rackgate.nouns.load import Load, Origin
from rackgate.nouns.measurement import Reason
from rackgate.nouns.sample import Outcome, Sample
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.nouns.target import EngineSpec, Target
from rackgate.statistics.log_histogram import LogHistogram
from rackgate.statistics.percentiles import nearest_rank

MS = 1_000_000


def sample(number, gaps_ms, outcome=Outcome.OK, warnings=(), answer_ms=None):
    moments = tuple(np.cumsum([10 * MS, *(round(gap * MS) for gap in gaps_ms)]).tolist())
    return Sample(
        request_id=f"r{number}", engine="e", load="l", label="x", outcome=outcome, scheduled_ns=number,
        sent_ns=0, first_token_ns=moments[0], last_token_ns=moments[-1], done_ns=moments[-1],
        first_answer_ns=None if answer_ms is None else answer_ms * MS,
        token_ns=moments, output_tokens=len(moments), token_source="usage", warnings=warnings,
    )  # fmt: skip


def measure(function, table, statistic="p99"):
    load = Load(name="l", prompt_tokens=1, output_tokens=1, looks=(len(table),))
    look = OfferedLoad(
        load=load, label="x", engines=("e",), samples=table,
        counters=Counters(scheduled=len(table), started=len(table), outcomes={"ok": len(table)}),
    )  # fmt: skip
    engine = EngineSpec(name="e", launcher="remote", model="m")
    observation = Observation(
        stage="s", target=Target(name="t", model="m", grade="cpu", engines=(engine,)),
        load_runs=(LoadRun(load="l", label="x", looks=(look,)),),
    )  # fmt: skip
    row = Slo(
        id="s.x", stage="s", metric="x", statistic=statistic, op=Op.AT_MOST, bound=1.0, unit="ms",
        scope=Scope.RACK, source="t", load="l",
    )  # fmt: skip
    return function(observation, row, "rack")


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=300), st.floats(0.001, 1.0), st.integers(1, 5))
def test_a_quantile_is_within_one_percent_of_the_nearest_rank(values, quantile, parts):
    histogram = LogHistogram(0.01)
    for part in np.array_split(values, parts):
        histogram.add(part)
    exact = nearest_rank(np.array(values), quantile)
    assert abs(histogram.quantile(quantile) - exact) <= 0.0101 * exact + 1e-6
    assert (len(values), max(values)) == (histogram.count, histogram.max)


def test_what_cannot_be_counted_is_refused():
    for bad in ([-1.0], [float("nan")], [float("inf")]):
        with pytest.raises(ValueError, match="at or above 0"):
            LogHistogram().add(bad)
    with pytest.raises(ValueError, match="relative error"):
        LogHistogram(1.0)
    assert LogHistogram().quantile(0.5) is None


RANDOM = np.random.default_rng(7)
ANSWERS = [sample(n, RANDOM.lognormal(3, 1, RANDOM.integers(0, 30)).tolist()) for n in range(200)]


def gaps_of(samples):
    return np.array([gap for one in samples for gap in one.chunk_gaps_ms])


@pytest.mark.parametrize("kept", ["memory", "file", "two files", "out of order"])
def test_gaps_are_those_of_the_answers_wherever_they_are_kept(tmp_path, monkeypatch, kept):
    monkeypatch.setattr(sample_file, "ROWS_PER_GROUP", 64)
    samples = [*ANSWERS, sample(999, [5000.0], outcome=Outcome.TRUNCATED)]
    table = SampleTable.from_samples(samples, Origin.SENT)
    if kept == "file":
        write_samples(table, tmp_path / "x")
        table = read_samples(tmp_path / "x")
    if kept == "two files":
        for name, part in (("a", samples[:70]), ("b", samples[70:])):
            write_samples(SampleTable.from_samples(part, Origin.SENT), tmp_path / name)
        parts = [read_samples(tmp_path / name) for name in "ab"]
        parts[1] = parts[1].where(np.arange(len(parts[1]))[::-1])
        table = SampleTable.concat(parts)
    if kept == "out of order":
        table = table.where(np.random.default_rng(1).permutation(len(table)))
    found = measure(chunk_gap_ms, table)
    exact = gaps_of(ANSWERS)
    assert found.value == pytest.approx(nearest_rank(exact, 0.99), rel=0.01)
    assert (len(exact), None) == (found.count, found.bounds)
    assert "1 tokens per chunk (P50)" in found.detail
    assert measure(chunk_gap_ms, table, "max").value == pytest.approx(exact.max())
    assert measure(chunk_gap_ms, table, "mean").value == pytest.approx(exact.mean())
    half = table.where(np.asarray(table.column("scheduled_ns")) < 100)
    assert measure(chunk_gap_ms, half).count == len(gaps_of(ANSWERS[:100]))


def test_answers_that_came_in_bursts_have_no_gaps():
    bursts = [sample(n, [0.0] * 9, warnings=("burst",)) for n in range(10)]
    few = SampleTable.from_samples([*bursts[:2], *ANSWERS], Origin.SENT)
    assert measure(chunk_gap_ms, few).count == len(gaps_of(ANSWERS))
    found = measure(chunk_gap_ms, SampleTable.from_samples(bursts, Origin.SENT))
    assert (None, Reason.UNSUPPORTED) == (found.value, found.reason)
    single = SampleTable.from_samples([sample(n, []) for n in range(10)], Origin.SENT)
    assert Reason.ABSENT is measure(chunk_gap_ms, single).reason


def test_the_first_answer_is_measured_apart_from_the_first_token():
    table = SampleTable.from_samples([sample(n, [5.0], answer_ms=100 + n) for n in range(100)], Origin.SENT)
    assert 149.0 == measure(time_to_first_answer_ms, table, "p50").value
    silent = SampleTable.from_samples([sample(n, [5.0]) for n in range(10)], Origin.SENT)
    assert Reason.ABSENT is measure(time_to_first_answer_ms, silent).reason
