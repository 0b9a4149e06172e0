"""A load that several worker processes offer is the load that one would offer, or it says that it is not."""

import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from rackgate.loadgen.running import start_load
from rackgate.loadgen.sizing import worker_count
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Arrival, Limits, Load, Phase
from rackgate.nouns.measurement import Reason

pytestmark = pytest.mark.slow

LOAD = Load(
    name="l", prompt_tokens=20, output_tokens=5, concurrency=6, looks=(25,), warmup_requests=4,
    limits=Limits(first_token_s=5, stall_s=5, total_s=20),
)  # fmt: skip
OPEN = replace(LOAD, arrival=Arrival.POISSON, rate_per_s=40.0, duration_s=1.0, concurrency=40, looks=())
TURNS = replace(LOAD, turns=3, looks=(25,))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = (
    b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


@pytest.fixture
def offered_by(tmp_path, raw_server):
    """Offer a load with so many workers; return it and the bytes of every request, in no order."""

    def offer(load, workers, name="all"):
        gone = threading.Event()

        def answer(connection, _number):
            connection.sendall(HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY))
            return "close" if gone.is_set() else ""

        server = raw_server(answer)
        endpoint = Endpoint(entity="n1/gpu0", url=server.url, model="m")
        path = tmp_path / f"{name}{workers}.parquet"
        running = start_load(replace(load, workers=workers), [endpoint], label="t", samples_path=path, seed=1)
        with running:
            offered = running.finish(60)
        gone.set()
        host = server.url.removeprefix("http://").encode()
        return offered, sorted(request.replace(host, b"HOST") for request in server.requests)

    return offer


@pytest.mark.parametrize("load", [LOAD, OPEN, TURNS], ids=["closed", "open", "conversations"])
def test_the_same_seed_gives_the_same_requests_however_many_workers_offer_them(offered_by, load):
    alone, asked_alone = offered_by(load, 1)
    shared, asked_shared = offered_by(load, 3)
    assert asked_alone == asked_shared
    assert alone.counters == shared.counters
    assert sorted(alone.samples.request_id) == sorted(shared.samples.request_id)


@pytest.mark.parametrize("load", [LOAD, OPEN], ids=["closed", "open"])
def test_counters_reconcile_over_all_workers_and_each_says_what_it_cost(offered_by, load):
    offered, _ = offered_by(load, 2)
    assert (offered.reason, offered.detail, offered.counters.reconciles) == (None, "", True)
    assert [0, 1] == [cost.worker for cost in offered.workers]
    assert offered.counters.scheduled == sum(cost.scheduled for cost in offered.workers)
    assert all(cost.cpu_s > 0 and cost.loop_lag_p99_ms is not None for cost in offered.workers)
    assert all(cost.schedule_lag_p99_ms is not None for cost in offered.workers)
    assert offered.counters.scheduled == len(offered.samples.measured)
    moments = offered.samples.scheduled_ns.tolist()
    assert moments == sorted(moments)


def test_an_open_load_keeps_its_one_schedule(offered_by):
    def gaps(offered):
        moments = sorted(offered.samples.measured.scheduled_ns.tolist())
        return [later - moments[0] for later in moments]

    assert gaps(offered_by(OPEN, 1)[0]) == gaps(offered_by(OPEN, 2)[0])


def test_all_workers_begin_at_the_same_moment(offered_by):
    offered, _ = offered_by(LOAD, 2)
    measured = offered.samples.measured
    first = [
        min(
            moment
            for name, moment in zip(measured.request_id, measured.scheduled_ns, strict=True)
            if int(name.rpartition("-r")[2]) % 2 == worker
        )
        for worker in (0, 1)
    ]
    assert all(0 <= moment - offered.start_ns < 100_000_000 for moment in first), first


def test_the_concurrency_is_split_and_never_exceeded(offered_by):
    sevens = replace(LOAD, concurrency=7, looks=(70,))
    offered, _ = offered_by(sevens, 3)
    assert 3 <= offered.peak_in_flight <= 7


@pytest.mark.parametrize("number", [0, 1])
def test_a_worker_that_is_killed_makes_the_whole_load_unknown(tmp_path, reference, number):
    load = replace(LOAD, looks=(100_000,), workers=2)
    endpoint = Endpoint(entity="n1/gpu0", url=reference, model="m")
    running = start_load(load, [endpoint], label="t", samples_path=tmp_path / "s.parquet", seed=1)
    with running:
        deadline = time.monotonic() + 30
        while running.finished_count < 50 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(running.process_ids[number], signal.SIGKILL)
        offered = running.finish(60)
    assert offered.reason == Reason.DIED
    assert offered.detail.startswith("1 of 2 workers: the load worker died (signal 9)")
    assert [number] == [cost.worker for cost in offered.workers if cost.died]
    assert 0 < len(offered.samples.measured) < 100_000
    assert not running.running


def test_one_that_dies_before_the_others_begin_does_not_make_them_wait(tmp_path, reference):
    load = replace(LOAD, workers=2)
    endpoint = Endpoint(entity="n1/gpu0", url=reference, model="m")
    running = start_load(load, [endpoint], label="t", samples_path=tmp_path / "s.parquet", seed=1)
    with running:
        os.kill(running.process_ids[1], signal.SIGKILL)
        offered = running.finish(20)
    assert (Reason.DIED, True) == (offered.reason, "1 of 2 workers" in offered.detail)


@pytest.mark.parametrize("workers", [0, 7])
def test_more_workers_than_requests_in_flight_are_refused(tmp_path, workers):
    endpoint = Endpoint(entity="n1/gpu0", url="http://127.0.0.1:9", model="m")
    with pytest.raises(ValueError, match=f"workers: {workers} is not between 1 and the concurrency of 6"):
        start_load(replace(LOAD, workers=workers), [endpoint], label="t", samples_path=tmp_path / "s", seed=1)


def test_a_load_takes_as_many_workers_as_its_rate_needs_and_leaves_a_core(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    assert 1 == worker_count(LOAD, 4)
    assert 1 == worker_count(replace(OPEN, rate_per_s=100.0), 4)
    busy = replace(OPEN, rate_per_s=500.0, output_tokens=100, concurrency=5000)
    assert (3, 6) == (worker_count(busy, 1), worker_count(busy, 2))
    assert 7 == worker_count(busy, 4)
    ramp = replace(
        busy, rate_per_s=None, phases=(Phase(duration_s=1.0, rate_per_s=1.0, to_rate_per_s=500.0),)
    )
    assert 3 == worker_count(ramp, 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    assert 1 == worker_count(busy, 4)
