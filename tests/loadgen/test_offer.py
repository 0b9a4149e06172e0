"""What is offered, when, and how it is counted."""

# ruff: noqa: ARG002 - stand-ins have the whole signature of what they stand in for

import asyncio
import json
import random
import threading
import time
from collections import Counter
from itertools import pairwise
from time import perf_counter_ns
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackgate.engines.protocols.answer import Ending
from rackgate.loadgen.http.head import Head
from rackgate.loadgen.http.transport import Finish
from rackgate.loadgen.requests.arrivals import schedule_ns
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.worker.load_generator import LoadGenerator
from rackgate.loadgen.worker.spool import sample_of_line
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Arrival, Limits, Load, Origin
from rackgate.nouns.sample import Outcome

pytestmark = pytest.mark.slow

WHOLE = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class ScriptedTransport:
    """Ends each request as a seeded script says, without a network."""

    requests: ClassVar[list[bytes]] = []

    def __init__(self, _server, seed=0, least_s=0.0, most_s=0.0):
        self._random = random.Random(seed)
        self._range = (least_s, most_s)
        self._tasks = []

    async def prepare(self, connections, *, connect_s):
        await asyncio.sleep(0)

    def close(self):
        pass

    def send(self, request, sink, *, connect_s):
        self.requests.append(request)
        self._tasks.append(asyncio.ensure_future(self._answer(sink)))

    async def _answer(self, sink):
        sink.on_end(await self._exchange(sink))

    async def _exchange(self, sink):
        fate = self._random.choice(["ok", "ok", "lost", "unconnected", "refused", "empty"])
        if fate == "unconnected":
            return Finish(ending=Ending.UNCONNECTED, t_ns=perf_counter_ns())
        ended = asyncio.get_running_loop().create_future()
        sink.on_sent(perf_counter_ns(), ScriptedExchange(ended))
        wait_s = self._random.uniform(*self._range)
        done, _ = await asyncio.wait([ended], timeout=wait_s)
        if done:
            return ended.result()
        now_ns = perf_counter_ns()
        sink.on_byte(now_ns)
        sink.on_head(now_ns, Head(status=503 if fate == "refused" else 200))
        if fate in ("ok", "lost"):
            sink.on_body([(now_ns, WHOLE if fate == "ok" else WHOLE[:-40])])
        return Finish(ending=Ending.LOST if fate == "lost" else Ending.COMPLETE, t_ns=now_ns)


class ScriptedExchange:
    """One of its requests."""

    def __init__(self, ended):
        self._ended = ended

    def process_reads(self):
        pass

    def abort(self, ending, detail=""):
        if not self._ended.done():
            self._ended.set_result(Finish(ending=ending, t_ns=perf_counter_ns(), detail=detail))


def run(load, *, requests, seed=1, endpoints=1, transport=ScriptedTransport, stop_after_s=None, label="t"):
    plan = LoadPlan(
        load=load,
        endpoints=tuple(Endpoint(entity=f"e{i}", url="http://x", model="m") for i in range(endpoints)),
        label=label,
        spool="",
        seed=seed,
        requests=requests,
        warmup=bool(load.warmup_requests),
    )
    lines = []

    async def go():
        offer = LoadGenerator(plan, lines.append, transport=transport)
        if stop_after_s is not None:
            asyncio.get_running_loop().call_later(stop_after_s, offer.stop)
        return await offer.run()

    result = asyncio.run(go())
    return [sample_of_line(line) for line in b"".join(lines).splitlines()], result


LOAD = Load(name="l", prompt_tokens=20, output_tokens=4, warmup_requests=0)


def load_of(**changes):
    fields = {name: getattr(LOAD, name) for name in LOAD.__slots__}
    return Load(**{**fields, **changes})


@settings(max_examples=25)
@given(
    arrival=st.sampled_from([Arrival.CLOSED, Arrival.CONSTANT, Arrival.POISSON, Arrival.GAMMA]),
    concurrency=st.integers(1, 5),
    requests=st.integers(1, 20),
    endpoints=st.integers(1, 3),
    warmup=st.integers(0, 3),
    seed=st.integers(0, 99),
    stop_after_s=st.sampled_from([None, 0.0, 0.01, 0.05]),
)
def test_counters_always_reconcile(arrival, concurrency, requests, endpoints, warmup, seed, stop_after_s):
    load = load_of(
        arrival=arrival,
        concurrency=concurrency,
        warmup_requests=warmup,
        rate_per_s=400.0,
        limits=Limits(total_s=2.0),
    )
    samples, result = run(
        load,
        requests=requests,
        endpoints=endpoints,
        stop_after_s=stop_after_s,
        transport=lambda server: ScriptedTransport(server, seed, 0.0, 0.02),
    )
    measured = [sample for sample in samples if not sample.warmup]
    outcomes = Counter(str(sample.outcome) for sample in measured)
    assert result["dropped"] == outcomes.pop("dropped", 0)
    assert result["outcomes"] == outcomes
    assert result["scheduled"] == result["started"] + result["dropped"] == len(measured)
    assert result["started"] == sum(result["outcomes"].values())
    assert result["peak_in_flight"] <= concurrency * endpoints
    assert len(samples) == len({sample.request_id for sample in samples})
    if stop_after_s is None:
        assert requests * endpoints == result["scheduled"]
        assert warmup * endpoints == len(samples) - len(measured)


def requests_of(load, seed, label="t"):
    ScriptedTransport.requests = []
    run(load, requests=6, seed=seed, label=label)
    return sorted(ScriptedTransport.requests)


def test_the_same_seed_sends_the_same_bytes():
    assert requests_of(LOAD, 1) == requests_of(LOAD, 1)


def test_another_seed_or_label_shares_no_prompt():
    first, second, third = (requests_of(LOAD, seed, label) for seed, label in ((1, "t"), (2, "t"), (1, "u")))
    prompts = [
        json.loads(request.partition(b"\r\n\r\n")[2])["messages"][0]["content"]
        for request in first + second + third
    ]
    assert len(set(prompts)) == 18
    assert len({" ".join(prompt.split()[8:14]) for prompt in prompts}) == 18
    assert {20} == {len(prompt.split()) for prompt in prompts}


def test_each_request_carries_its_own_id_and_trace():
    ScriptedTransport.requests = []
    samples, _ = run(LOAD, requests=2)
    heads = [request.partition(b"\r\n\r\n")[0].decode() for request in ScriptedTransport.requests]
    for sample, head in zip(samples, heads, strict=True):
        assert f"X-Request-Id: {sample.request_id}" in head
    traces = {line for head in heads for line in head.split("\r\n") if line.startswith("traceparent: 00-")}
    assert [len(trace) for trace in traces] == [68, 68]


def test_a_header_cannot_smuggle_a_line():
    plan = LoadPlan(
        load=LOAD,
        endpoints=(Endpoint(entity="e", url="http://x", model="m", headers={"A": "b\r\nC: d"}),),
        label="t", spool="", seed=1, requests=1,
    )  # fmt: skip

    async def go():
        LoadGenerator(plan, print)

    with pytest.raises(ValueError, match="line end"):
        asyncio.run(go())


@given(
    arrival=st.sampled_from([Arrival.CONSTANT, Arrival.POISSON]),
    rate=st.floats(0.5, 500),
    requests=st.integers(1, 300),
    endpoint=st.integers(0, 3),
    seed=st.text(max_size=5),
)
def test_a_schedule_is_ascending_complete_and_reproducible(arrival, rate, requests, endpoint, seed):
    load = load_of(arrival=arrival, rate_per_s=rate)
    first, second = (
        list(schedule_ns(load, requests=requests, endpoint=endpoint, endpoints=4, seed=seed))
        for _ in range(2)
    )
    assert first == second == sorted(first)
    assert requests == len(first)
    assert first[0] >= 0
    assert first[-1] <= (requests + 1) / rate * 1e9


def test_poisson_gaps_scatter_as_their_mean():
    load = load_of(arrival=Arrival.POISSON, rate_per_s=100.0)
    moments = list(schedule_ns(load, requests=20_000, endpoint=0, endpoints=1, seed="s"))
    gaps = [(later - earlier) / 1e6 for earlier, later in pairwise(moments)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert 9.7 < mean < 10.3
    assert 0.95 < deviation / mean < 1.05


def test_endpoints_have_schedules_of_their_own():
    load = load_of(arrival=Arrival.POISSON, rate_per_s=100.0)
    first, second = (set(schedule_ns(load, requests=50, endpoint=i, endpoints=2, seed="s")) for i in range(2))
    assert not first & second


class StallingTransport(ScriptedTransport):
    """Answers after 0.1 s."""

    def __init__(self, server):
        super().__init__(server, 0, 0.1, 0.1)
        self._random.choice = lambda _fates: "ok"


def test_an_open_load_drops_what_exceeds_its_cap_and_counts_it():
    load = load_of(arrival=Arrival.CONSTANT, rate_per_s=100.0, concurrency=2)
    samples, result = run(load, requests=30, transport=StallingTransport)
    dropped = [sample for sample in samples if sample.outcome is Outcome.DROPPED]
    assert len(dropped) == result["dropped"] > 10
    assert result["peak_in_flight"] == 2
    assert all(sample.sent_ns is None and sample.scheduled_ns for sample in dropped)


@pytest.mark.parametrize("cap", [1, 2])
def test_the_cap_holds_for_every_turn_of_a_conversation(cap):
    load = load_of(arrival=Arrival.CONSTANT, rate_per_s=15.0, concurrency=cap, turns=3, think_s=0.05)
    samples, result = run(load, requests=45, transport=StallingTransport)
    assert cap == result["peak_in_flight"]
    assert (45, 45) == (result["scheduled"], result["started"] + result["dropped"])
    by_number = {int(sample.request_id.rpartition("-r")[2]): sample.outcome for sample in samples}
    assert list(range(45)) == sorted(by_number)
    talks = [[by_number[3 * talk + turn] for turn in range(3)] for talk in range(15)]
    begun = [talk for talk in talks if talk[0] is Outcome.OK]
    assert any(Outcome.DROPPED in talk for talk in begun)
    # Once a turn is dropped, so is what comes behind it.
    ok_first = {Outcome.OK: 0, Outcome.DROPPED: 1}
    assert talks == [sorted(talk, key=ok_first.__getitem__) for talk in talks]


def test_a_generator_that_is_late_still_counts_from_the_schedule():
    """No omission: a loop that stands still shows in the schedule lag and delays no later deadline."""

    class Blocking(StallingTransport):
        def send(self, request, sink, *, connect_s):
            if len(ScriptedTransport.requests) == 3:
                time.sleep(0.12)  # the loop is to stand still
            super().send(request, sink, connect_s=connect_s)

    ScriptedTransport.requests = []
    load = load_of(arrival=Arrival.CONSTANT, rate_per_s=50.0, concurrency=50)
    samples, result = run(load, requests=20, transport=Blocking)
    offsets = sorted(round((sample.scheduled_ns - result["start_ns"]) / 1e6) for sample in samples)
    assert [20 * index for index in range(20)] == offsets
    lags = [sample.schedule_lag_ms for sample in sorted(samples, key=lambda one: one.scheduled_ns)]
    assert max(lags) >= 80
    late = max(samples, key=lambda one: one.schedule_lag_ms)
    assert late.ttft_ms(Origin.SCHEDULED) >= late.schedule_lag_ms + 90


def test_the_steady_window_goes_from_warm_up_to_the_last_scheduled_start():
    samples, result = run(load_of(concurrency=2, warmup_requests=2), requests=8, transport=StallingTransport)
    warm, measured = ([one for one in samples if one.warmup is is_warm] for is_warm in (True, False))
    assert (len(warm), len(measured)) == (2, 8)
    assert (
        max(one.done_ns for one in warm)
        <= result["steady_start_ns"]
        <= min(one.scheduled_ns for one in measured)
    )
    assert max(one.scheduled_ns for one in measured) == result["steady_end_ns"]
    assert max(one.done_ns for one in measured) == result["end_ns"]


def test_a_closed_load_ends_with_its_duration():
    _, result = run(load_of(concurrency=2, duration_s=0.35), requests=None, transport=StallingTransport)
    assert 2 <= result["scheduled"] <= 8
    assert {"ok": result["scheduled"]} == result["outcomes"]


class HungTransport(ScriptedTransport):
    """Never answers."""

    def __init__(self, server):
        super().__init__(server, 0, 60, 60)
        self._random.choice = lambda _fates: "ok"


def test_a_hung_engine_s_tail_is_timeout_and_does_not_vanish():
    load = load_of(
        arrival=Arrival.CONSTANT,
        rate_per_s=100.0,
        concurrency=50,
        limits=Limits(first_token_s=0.3, stall_s=0.3),
    )
    _, result = run(load, requests=10, transport=HungTransport)
    assert result["outcomes"] == {"timeout": 10}


def test_what_is_inside_its_bounds_when_the_load_is_stopped_is_cancelled():
    _, result = run(load_of(concurrency=3), requests=9, transport=HungTransport, stop_after_s=0.1)
    assert (result["outcomes"], result["scheduled"], result["stopped"]) == ({"cancelled": 3}, 3, True)


def test_a_closed_load_pauses_after_it_was_turned_away(offer, reply):
    server = reply(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
    samples, result = offer(server.url, requests=4)
    assert result["outcomes"] == {"refused": 4}
    moments = [sample.scheduled_ns for sample in samples]
    assert all(later - earlier >= 45e6 for earlier, later in pairwise(moments))


def test_the_asked_concurrency_reaches_the_server(offer, raw_server):
    """No pool limit of a library stands between: 128 asked, 128 at once at the server."""
    gate = threading.Barrier(128, timeout=20)
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%b" % (
        len(WHOLE),
        WHOLE,
    )

    def handle(connection, _number):
        gate.wait()
        connection.sendall(answer)

    _, result = offer(raw_server(handle).url, concurrency=128, requests=128, limits=Limits(first_token_s=25))
    assert (result["outcomes"], result["peak_in_flight"]) == ({"ok": 128}, 128)


def test_a_load_far_behind_its_schedule_goes_on_serving_what_it_started():
    load = load_of(arrival=Arrival.CONSTANT, rate_per_s=100_000.0, concurrency=3)
    samples, result = run(load, requests=2000, transport=lambda _: OkTransport(_, 0, 0.0, 0.001))
    assert result["scheduled"] == len(samples) == 2000
    assert result["started"] > 20


class OkTransport(ScriptedTransport):
    """Answers at once."""

    def __init__(self, *script):
        super().__init__(*script)
        self._random.choice = lambda _fates: "ok"
