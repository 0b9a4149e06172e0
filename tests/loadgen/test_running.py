"""The worker process: what comes back from it, and that it never stays behind."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rackgate.loadgen.instrument.reference import reference_server
from rackgate.loadgen.instrument.reference_server import Script
from rackgate.loadgen.results.offered_load import Counters
from rackgate.loadgen.results.sample_file import read_samples
from rackgate.loadgen.running import start_load
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Arrival, Limits, Load
from rackgate.nouns.measurement import Reason

pytestmark = pytest.mark.slow

LOAD = Load(
    name="l", prompt_tokens=20, output_tokens=5, concurrency=2, looks=(8,), warmup_requests=1,
    limits=Limits(first_token_s=5, stall_s=5, total_s=20),
)  # fmt: skip


@pytest.fixture
def start(tmp_path, reference):
    """Start a load against the quick reference server; its worker is gone afterwards."""
    started = []

    def run(load=LOAD, *, urls=(), **more):
        endpoints = [
            Endpoint(entity=f"n1/gpu{i}", url=url, model="m")
            for i, url in enumerate(urls or [reference, reference])
        ]
        path = tmp_path / "samples" / f"{len(started)}.parquet"
        started.append(start_load(load, endpoints, label="t", samples_path=path, **{"seed": 1, **more}))
        return started[-1]

    yield run
    for running in started:
        with running:
            pass
        assert not running.running


def test_a_load_comes_back_whole(start, samples_of):
    offered = start().finish(60)
    assert (offered.reason, offered.detail) == (None, "")
    assert offered.engines == ("n1/gpu0", "n1/gpu1")
    assert offered.counters == Counters(scheduled=16, started=16, dropped=0, outcomes={"ok": 16})
    assert offered.counters.reconciles
    assert offered.peak_in_flight == 4
    assert offered.start_ns <= offered.steady_start_ns < offered.steady_end_ns <= offered.end_ns
    table = offered.samples
    assert (len(table), len(table.measured)) == (18, 16)
    assert {name: int((table.engine == name).sum()) for name in offered.engines} == {
        "n1/gpu0": 9,
        "n1/gpu1": 9,
    }
    assert {5} == set(table.measured.output_tokens)
    assert (table.measured.ttft_ms >= 4).all()
    assert [path.name for path in offered.samples_path.parent.iterdir()] == ["0.parquet"]
    again = read_samples(offered.samples_path)
    assert samples_of(table) == samples_of(again)


def test_the_same_seed_asks_for_the_same_again(start):
    first, second, other = (start(seed=seed).finish(60).samples for seed in (1, 1, 2))
    assert sorted(first.request_id) == sorted(second.request_id)
    assert not set(first.request_id) & set(other.request_id)


def test_later_looks_carry_their_number_and_ids_of_their_own(start):
    first = start(requests=2).finish(60).samples
    second = start(requests=3, look=1, warmup=False).finish(60).samples
    assert ({0}, {1}, 6) == (set(first.look), set(second.look), len(second))
    assert not set(first.request_id) & set(second.request_id)


def test_an_open_load_counts_latency_from_the_schedule(start):
    load = replace(LOAD, arrival=Arrival.POISSON, rate_per_s=20.0, duration_s=0.5, concurrency=20, looks=())
    offered = start(load).finish(60)
    assert (offered.counters.scheduled, offered.counters.reconciles) == (20, True)
    table = offered.samples.measured
    assert (table.ttft_ms > table.ttft_sent_ms).all()
    assert (abs(table.ttft_ms - table.ttft_sent_ms - table.schedule_lag_ms) < 1e-3).all()


def test_a_cancelled_load_says_what_it_left_unfinished(start):
    with reference_server(Script(ttft_ms=(30_000.0,))) as hung:
        running = start(urls=[hung], warmup=False)
        deadline = time.monotonic() + 30
        while (
            running.live_state is None or running.live_state.in_flight < 2
        ) and time.monotonic() < deadline:
            time.sleep(0.05)
        running.cancel()
        offered = running.finish(30)
    assert (offered.reason, offered.counters.outcomes) == (None, {"cancelled": 2})


def test_a_load_that_is_cancelled_before_it_began_is_empty_and_counted(start):
    running = start()
    running.cancel()
    offered = running.finish(30)
    assert (offered.reason, offered.counters.reconciles) == (None, True)
    assert offered.counters.outcomes.get("ok", 0) < 16


def test_progress_counts_what_has_ended(start):
    running = start()
    running.finish(60)
    assert running.finished_count == 18


def test_a_load_past_the_caller_s_limit_is_ended_and_says_so(start):
    with reference_server(Script(ttft_ms=(30_000.0,))) as hung:
        offered = start(urls=[hung], warmup=False).finish(1.0)
    assert offered.reason == Reason.TIMEOUT
    assert offered.counters.reconciles


def test_a_worker_that_dies_is_said_and_what_it_finished_is_kept(start):
    offered = start(instrument_fault="die").finish(60)
    assert offered.reason == Reason.DIED
    assert "exit status 70" in offered.detail
    assert 0 < len(offered.samples.measured) < 16


def test_a_worker_that_is_killed_is_said(start):
    running = start(replace(LOAD, looks=(100_000,)))
    time.sleep(0.7)
    os.kill(running.process_ids[0], signal.SIGKILL)
    offered = running.finish(60)
    assert (offered.reason, offered.detail) == (Reason.DIED, "the load worker died (signal 9)")


def test_leaving_the_context_ends_the_worker(start):
    with start(replace(LOAD, looks=(100_000,))) as running:
        assert running.running
    assert not running.running


def test_a_worker_does_not_outlive_its_parent(tmp_path, reference):
    code = (
        "import os; from pathlib import Path\n"
        "from rackgate.nouns.load import Load; from rackgate.nouns.endpoint import Endpoint\n"
        "from rackgate.loadgen.running import start_load\n"
        "load = Load(name='l', prompt_tokens=9, output_tokens=5, looks=(100000,))\n"
        f"e = Endpoint(entity='e', url={reference!r}, model='m')\n"
        f"r = start_load(load, [e], label='t', samples_path=Path({str(tmp_path)!r}) / 'x.parquet', seed=1)\n"
        "print(r.process_ids[0], flush=True); os._exit(0)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, timeout=30, env=env()
    ).stdout
    deadline = time.monotonic() + 10
    while alive(int(said)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(int(said))


def env():
    import rackgate

    return {**os.environ, "PYTHONPATH": str(Path(rackgate.__file__).parent.parent)}


def alive(process_id):
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_key_is_not_in_the_worker_s_arguments(tmp_path, reference):
    endpoint = Endpoint(entity="e", url=reference, model="m", headers={"Authorization": "Bearer sk-secret-1"})
    assert "sk-secret-1" not in repr(endpoint)
    with start_load(LOAD, [endpoint], label="t", samples_path=tmp_path / "x.parquet", seed=1) as running:
        process = Path(f"/proc/{running.process_ids[0]}")
        assert b"sk-secret-1" not in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        running.finish(60)
    assert b"sk-secret-1" not in (tmp_path / "x.parquet").read_bytes()


def test_a_first_token_after_7_seconds_is_no_error(tmp_path):
    """Limits are ours and explicit; no library default of 5 s stands behind them."""
    load = replace(LOAD, looks=(1,), concurrency=1, limits=Limits())
    with reference_server(Script(ttft_ms=(7200.0,))) as url:
        endpoint = Endpoint(entity="e", url=url, model="m")
        running = start_load(load, [endpoint], label="t", samples_path=tmp_path / "x", seed=1, warmup=False)
        with running:
            offered = running.finish(60)
    assert offered.counters.outcomes == {"ok": 1}
    assert 7200 - 5 <= offered.samples.ttft_ms[0] < 9000


@pytest.mark.parametrize(
    ("words", "load", "more"),
    [
        ("neither how many requests", replace(LOAD, looks=()), {}),
        ("unknown instrument_fault", LOAD, {"instrument_fault": "tired"}),
    ],
)
def test_a_load_that_cannot_be_offered_is_refused_at_once(start, words, load, more):
    with pytest.raises(ValueError, match=words):
        start(load, **more)


def test_a_module_in_the_current_directory_does_not_reach_the_worker(start, tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    monkeypatch.chdir(tmp_path)
    assert start().finish(60).reason is None


def test_an_endpoint_that_cannot_be_understood_is_the_worker_s_death_with_its_reason(start):
    offered = start(urls=["ftp://x"]).finish(60)
    assert offered.reason == Reason.DIED
    assert "is no http or https URL" in offered.detail
