"""Shapes of load: the same seed gives the same bytes at the same moments, whatever the shape."""

import json
import tracemalloc
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackgate.config.acceptance_tables import LoadTable
from rackgate.loadgen.requests.arrivals import schedule_ns
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.requests.trace import trace_of
from rackgate.loadgen.running import start_load
from rackgate.loadgen.worker.endpoint_client import EndpointClient
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Arrival, Load, Phase, Shape, Spread

pytestmark = pytest.mark.slow

MOONCAKE = str(Path(__file__).parents[2] / "traces" / "mooncake.jsonl")
LOAD = Load(
    name="s", prompt_tokens=40, output_tokens=8, arrival=Arrival.CONSTANT, rate_per_s=50.0, duration_s=2.0
)
TASK = "Continue this list of words as a story: "
"""What every plain prompt begins with: shorter than any block of a prefix cache."""


def plan_of(load, seed=1):
    endpoint = Endpoint(entity="e", url="http://x", model="m")
    return LoadPlan(load=load, endpoints=(endpoint,), label="t", spool="", seed=seed, requests=3)


def bodies(load, count=6, kind="r", seed=1):
    trace = trace_of(load)
    client = EndpointClient(plan_of(load, seed), 0, None, trace=trace.requests if trace else ())
    made = [client.request(kind, index)[1] for index in range(count)]
    return made, [json.loads(request.partition(b"\r\n\r\n")[2]) for request in made]


def moments(load, requests, *, seed="x", endpoint=0, endpoints=1):
    return list(schedule_ns(load, requests=requests, endpoint=endpoint, endpoints=endpoints, seed=seed))


spreads = st.builds(
    Spread,
    shape=st.sampled_from(Shape),
    deviation=st.floats(0, 500),
    least=st.integers(1, 20),
    most=st.one_of(st.none(), st.integers(20, 400)),
)
phases = st.builds(
    Phase,
    duration_s=st.floats(0.1, 60),
    rate_per_s=st.floats(0, 200),
    to_rate_per_s=st.one_of(st.none(), st.floats(0, 200)),
)
varied = st.builds(
    Load,
    name=st.just("v"),
    prompt_tokens=st.integers(8, 300),
    output_tokens=st.integers(1, 300),
    prompt_spread=st.one_of(st.none(), spreads),
    output_spread=st.one_of(st.none(), spreads),
    shared_prefix_tokens=st.integers(0, 7),
    shared_prefixes=st.integers(1, 3),
    turns=st.integers(1, 3),
)


@settings(max_examples=25)
@given(load=varied, seed=st.integers(0, 5))
def test_the_same_seed_gives_the_same_bytes(load, seed):
    assert bodies(load, seed=seed)[0] == bodies(load, seed=seed)[0]


def test_another_seed_gives_other_bytes():
    load = replace(LOAD, prompt_spread=Spread(shape=Shape.NORMAL, deviation=5))
    assert not set(bodies(load, seed=1)[0]) & set(bodies(load, seed=2)[0])


@settings(max_examples=60)
@given(
    kind=st.sampled_from([Arrival.CONSTANT, Arrival.POISSON, Arrival.GAMMA]),
    parts=st.lists(phases, max_size=4),
    burstiness=st.floats(0.05, 20),
    requests=st.integers(0, 60),
)
def test_a_schedule_is_whole_ascending_and_the_same_again(kind, parts, burstiness, requests):
    load = replace(LOAD, arrival=kind, phases=tuple(parts), burstiness=burstiness)
    found = moments(load, requests)
    assert (requests, True) == (len(found), all(0 <= a <= b for a, b in pairwise([0, *found])))
    assert found == moments(load, requests)
    assert requests < 4 or kind is Arrival.CONSTANT or parts or found != moments(load, requests, seed="y")


def test_a_step_changes_the_rate_at_its_moment():
    load = replace(LOAD, phases=(Phase(duration_s=2, rate_per_s=10), Phase(duration_s=2, rate_per_s=40)))
    found = np.array(moments(load, 100)) / 1e9
    assert (20, 80) == ((found < 2).sum(), (found >= 2).sum())
    assert np.diff(found[found >= 2]) == pytest.approx(1 / 40)


def test_a_ramp_grows_evenly():
    load = replace(LOAD, phases=(Phase(duration_s=10, rate_per_s=0, to_rate_per_s=20),), rate_per_s=None)
    found = np.array(moments(load, 100)) / 1e9
    assert (25, 75) == ((found < 5).sum(), (found >= 5).sum())
    assert found == pytest.approx(np.sqrt(np.arange(100)))


@pytest.mark.parametrize(("burstiness", "expected"), [(0.25, 2.0), (1.0, 1.0), (4.0, 0.5)])
def test_burstiness_is_the_shape_of_the_gaps(burstiness, expected):
    load = replace(LOAD, arrival=Arrival.GAMMA, burstiness=burstiness)
    gaps = np.diff(moments(load, 20_000))
    assert expected == pytest.approx(gaps.std() / gaps.mean(), rel=0.08)
    assert gaps.mean() == pytest.approx(1e9 / 50, rel=0.02)


@pytest.mark.parametrize("kind", [Arrival.CONSTANT, Arrival.POISSON, Arrival.GAMMA])
def test_a_schedule_of_a_week_begins_at_once(kind):
    load = replace(LOAD, arrival=kind, burstiness=0.5, duration_s=168 * 3600.0)
    tracemalloc.start()
    try:
        schedule = schedule_ns(load, requests=load.planned_requests, endpoint=0, endpoints=1, seed="x")
        first = list(islice(schedule, 1000))
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert first == list(
        islice(schedule_ns(load, requests=load.planned_requests, endpoint=0, endpoints=1, seed="x"), 1000)
    )
    assert first == sorted(first)
    assert most_bytes < 1e6


@settings(max_examples=20)
@given(kind=st.sampled_from([Arrival.POISSON, Arrival.GAMMA]), seed=st.text(max_size=3))
def test_arrivals_are_spread_over_the_whole_time(kind, seed):
    load = replace(LOAD, arrival=kind, burstiness=1.0, rate_per_s=1000.0)
    found = np.array(moments(load, 4000, seed=seed)) / 4e9
    # Kolmogorov-Smirnov against the uniform law, at one in a million.
    ranks = np.arange(1, 4001) / 4000
    assert max(np.abs(found - ranks).max(), np.abs(found - ranks + 1 / 4000).max()) < 2.7 / np.sqrt(4000)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"arrival": Arrival.TRACE, "trace": MOONCAKE, "rate_per_s": None, "duration_s": 0.08}, 2),
        ({"arrival": Arrival.TRACE, "arrivals_s": (0.5, 1.5, 4.0), "rate_per_s": None}, 2),
        ({"arrival": Arrival.TRACE, "arrivals_s": (0.5, 4.0, 9.0), "trace_speed": 3.0}, 2),
        ({"requests": 10}, 10),
        ({"requests": 1000}, 100),
        ({"requests": 2, "arrival": Arrival.POISSON, "trace": MOONCAKE, "duration_s": 0.06}, 2),
    ],
)
def test_an_open_load_ends_with_its_time_or_its_requests_whichever_comes_first(
    changes, expected, reference, tmp_path
):
    changes = {**changes}
    requests = changes.pop("requests", None)
    load = replace(LOAD, warmup_requests=0, **changes)
    endpoint, path = Endpoint(entity="e", url=reference, model="m"), tmp_path / "x"
    with start_load(load, [endpoint], label="t", samples_path=path, seed=1, requests=requests) as running:
        offered = running.finish(30)
    assert (None, expected) == (offered.reason, offered.counters.scheduled)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate_per_s": 0.1, "duration_s": 2.0}, "0.1/s for 2 s are no request at all"),
        (
            {"arrival": Arrival.TRACE, "arrivals_s": (5.0,), "rate_per_s": None, "duration_s": 3.0},
            "3 s end before the first of arrivals_s",
        ),
    ],
)
def test_a_load_without_any_request_is_impossible(changes, words):
    assert words in " ".join(replace(LOAD, **changes).problems)


def test_explicit_moments_are_kept():
    load = replace(LOAD, arrival=Arrival.TRACE, arrivals_s=(0.5, 0.5, 2.0), trace_speed=2.0)
    assert [250_000_000, 250_000_000, 1_000_000_000] == moments(load, load.planned_requests)


@pytest.mark.parametrize("shape", list(Shape))
def test_lengths_have_the_stated_mean_and_spread(shape):
    load = replace(LOAD, output_tokens=200, output_spread=Spread(shape=shape, deviation=60.0))
    drawn = np.array([body["max_tokens"] for body in bodies(load, 1500)[1]])
    assert drawn.mean() == pytest.approx(200, rel=0.05)
    expected = 60 / np.sqrt(3) if shape is Shape.UNIFORM else 60
    assert drawn.std() == pytest.approx(expected, rel=0.12)


def test_lengths_stay_within_their_limits():
    spread = Spread(shape=Shape.LOGNORMAL, deviation=400, least=30, most=60)
    load = replace(LOAD, prompt_spread=spread, output_spread=spread)
    _, made = bodies(load, 300)
    words = {len(body["messages"][0]["content"].split()) for body in made}
    assert (30, 60) == (min(words), max(words))
    assert {30, 60} <= {body["max_tokens"] for body in made}


def test_prompts_share_their_prefix_and_nothing_else():
    load = replace(LOAD, shared_prefix_tokens=25, shared_prefixes=2)
    prompts = [body["messages"][0]["content"].split() for body in bodies(load, 40)[1]]
    assert {40} == {len(prompt) for prompt in prompts}
    assert 2 == len({tuple(prompt[:25]) for prompt in prompts})
    assert 40 == len({tuple(prompt[25:31]) for prompt in prompts})


@pytest.mark.parametrize(
    "spread", [None, Spread(shape=Shape.UNIFORM, deviation=5.0)], ids=["plain", "varied"]
)
def test_warm_up_primes_no_prefix_cache_for_what_is_measured(spread):
    load = replace(LOAD, prompt_spread=spread)
    assert (spread is None) == load.plain
    measured, warm = (
        {body["messages"][0]["content"].removeprefix(TASK)[:20] for body in bodies(load, 60, kind)[1]}
        for kind in "rw"
    )
    assert (60, 60) == (len(measured), len(warm))
    assert not measured & warm
    assert not set(bodies(load, 60)[0]) & set(bodies(load, 60, "w")[0])


def test_warm_up_shares_no_prefix_with_what_is_measured():
    load = replace(LOAD, shared_prefix_tokens=25)
    measured, warm = (bodies(load, 3, kind)[1] for kind in "rw")
    beginnings = [{body["messages"][0]["content"][:20] for body in made} for made in (measured, warm)]
    assert set() == beginnings[0] & beginnings[1]


def test_a_turn_repeats_all_that_was_said_before():
    _, made = bodies(replace(LOAD, turns=3), 6)
    assert [1, 3, 5, 1, 3, 5] == [len(body["messages"]) for body in made]
    assert made[2]["messages"][:3] == made[1]["messages"]
    assert ["user", "assistant", "user"] == [message["role"] for message in made[1]["messages"]]
    assert made[0]["messages"] != made[3]["messages"]


def test_requests_with_the_same_hashes_begin_alike():
    load = replace(LOAD, trace=MOONCAKE)
    first, second, third = (body["messages"][0]["content"].split() for body in bodies(load, 3)[1])
    assert (700, 900, 12) == (len(first), len(second), len(third))
    assert first[:512] == second[:512]
    assert first[512:520] != second[512:520]


def test_a_plan_of_every_shape_survives_its_way_to_the_worker():
    load = replace(
        LOAD,
        prompt_spread=Spread(shape=Shape.UNIFORM, deviation=3),
        arrivals_s=(1.0,),
        arrival=Arrival.TRACE,
        phases=(Phase(duration_s=1, rate_per_s=2, to_rate_per_s=3),),
    )
    plan = plan_of(load)
    assert plan == LoadPlan.from_json(plan.to_json())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate_per_s": 0.0}, "rate_per_s: 0 is not above 0"),
        ({"concurrency": 0}, "concurrency: 0 is below 1"),
        ({"context_tokens": 47}, "48 tokens of prompt and output exceed the model's context of 47"),
        ({"context_tokens": 90, "turns": 2}, "96 tokens"),
        ({"arrival": Arrival.TRACE}, "trace arrivals need arrivals_s or a trace"),
        (
            {"arrival": Arrival.TRACE, "arrivals_s": (1.0, 0.5)},
            "arrivals_s[1]: 0.5 s after 1 s: times go backwards",
        ),
        ({"arrivals_s": (1.0,)}, "only for the arrival 'trace'"),
        ({"phases": (Phase(duration_s=1, rate_per_s=5),)}, "beside rate_per_s or duration_s"),
        ({"phases": (Phase(duration_s=1, rate_per_s=0),)}, "they offer no request at all"),
        ({"phases": (Phase(duration_s=-1, rate_per_s=5),)}, "phases[0]: a duration above 0"),
        ({"ramp_s": 2.0}, "an open one has phases"),
        ({"shared_prefix_tokens": 40}, "leave nothing of a prompt of 40"),
        ({"trace": MOONCAKE, "turns": 2}, "no turns and no shared prefix"),
        (
            {"prompt_spread": Spread(shape=Shape.NORMAL, deviation=1, least=9, most=3)},
            "no length is at least 9",
        ),
        ({"burstiness": 0.0}, "burstiness: 0 is not above 0"),
    ],
)
def test_an_impossible_load_says_why(changes, words):
    problems = replace(LOAD, **changes).problems
    assert [problem for problem in problems if words in problem], problems


def test_a_load_of_the_acceptance_file_has_every_shape():
    table = {
        "prompt_tokens": 10, "output_tokens": 2, "arrival": "gamma", "burstiness": 0.5,
        "phases": [{"duration_s": 2.0, "rate_per_s": 1.0, "to_rate_per_s": 3.0}],
        "prompt_spread": {"shape": "uniform", "deviation": 2.0}, "turns": 2, "think_s": 0.1,
    }  # fmt: skip
    load = LoadTable.model_validate(table).to_load("n")
    assert (8, (), 2) == (load.planned_requests, load.problems, load.turns)
    trace = {"prompt_tokens": 1, "output_tokens": 1, "arrival": "trace", "trace": MOONCAKE}
    assert 3 == LoadTable.model_validate(trace).to_load("n").planned_requests


def test_conversations_run_turn_by_turn(reference, offer):
    for shape in (
        {"concurrency": 2, "requests": 6, "looks": ()},
        {"arrival": Arrival.CONSTANT, "rate_per_s": 40.0, "concurrency": 8, "requests": 6, "looks": ()},
    ):
        samples, result = offer(reference, turns=3, think_s=0.01, **shape)
        by_id = {int(sample.request_id.rpartition("r")[2]): sample for sample in samples}
        assert [0, 1, 2, 3, 4, 5] == sorted(by_id)
        assert ({"ok": 6}, 6, 6) == (result["outcomes"], result["scheduled"], result["started"])
        for index in (1, 2, 4, 5):
            assert by_id[index].scheduled_ns - by_id[index - 1].done_ns >= 9_900_000


def test_a_conversation_that_finds_no_place_is_dropped_whole(reference, offer):
    samples, result = offer(
        reference, turns=2, arrival=Arrival.TRACE, arrivals_s=(0.0, 0.0), concurrency=1, requests=4, looks=()
    )
    assert (4, 2, 2) == (result["scheduled"], result["started"], result["dropped"])
    assert ["dropped", "dropped", "ok", "ok"] == sorted(str(sample.outcome) for sample in samples)


def test_what_a_ramp_starts_is_warm_up(reference, offer):
    samples, result = offer(reference, ramp_s=0.2, concurrency=4, requests=12, looks=())
    measured = [sample for sample in samples if not sample.warmup]
    assert 12 == len(measured) == result["scheduled"]
    assert len(samples) > 12
    assert min(sample.scheduled_ns for sample in measured) >= result["start_ns"]
