"""A load that other machines offer is the load that this one would offer, on this one's time axis.

The machines are nodes of a real Ray cluster on this machine's loopback. The clock of one of them is 1,000 s
ahead, where a time namespace may be made.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest

from rackgate.cli import main
from rackgate.evidence.record import read_records
from rackgate.loadgen.remote.load_machine import LoadMachine
from rackgate.loadgen.remote.relay import NoLoadMachines
from rackgate.loadgen.running import start_load
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Arrival, Limits, Load
from rackgate.nouns.measurement import Reason
from rackgate.nouns.target import LoadMachines
from rackgate.simulator.rack import start_rack
from rackgate.simulator.settings import RackSettings

pytestmark = pytest.mark.slow

LOAD = Load(
    name="l", prompt_tokens=20, output_tokens=5, concurrency=6, looks=(60,), warmup_requests=4,
    limits=Limits(first_token_s=5, stall_s=5, total_s=20),
)  # fmt: skip
OPEN = replace(LOAD, arrival=Arrival.POISSON, rate_per_s=40.0, duration_s=1.0, concurrency=40, looks=())
ENDLESS = replace(LOAD, looks=(100_000,))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = (
    b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


class Cluster:
    """The cluster and what was said to it."""

    def __init__(self, log):
        script = Path(__file__).with_name("ray_cluster.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self.address = self._process.stdout.readline().strip()

    def say(self, word, name):
        """Let something be done and return the answer."""
        self._process.stdin.write(f"{word} {name}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with (tmp_path_factory.mktemp("ray") / "log").open("w") as log:
        cluster = Cluster(log)
        try:
            cluster.say("add", "lm1")
            cluster.ahead_s = cluster.say("clock", "lm2")
            yield cluster
        finally:
            cluster.close()


@pytest.fixture
def machines(cluster):
    return LoadMachines(ray=cluster.address, nodes=("lm1", "lm2"))


@pytest.fixture
def offered_to(tmp_path):
    """Offer a load to a URL and return it."""

    def offered_to(url, load, machines=None, name="load"):
        endpoint = Endpoint(entity="n1/gpu0", url=url, model="m")
        path = tmp_path / f"{name}.parquet"
        with start_load(load, [endpoint], label="t", samples_path=path, seed=1, machines=machines) as running:
            return running.finish(60)

    return offered_to


def test_machines_with_other_clocks_measure_what_the_server_did_on_its_own(
    offered_to, reference, machines, cluster
):
    offered = offered_to(reference, LOAD, machines)
    assert (None, "", True) == (offered.reason, offered.detail, offered.counters.reconciles)
    assert (60, {"ok": 60}) == (offered.counters.scheduled, offered.counters.outcomes)
    assert [("lm1", 30), ("lm2", 30)] == [(cost.machine, cost.scheduled) for cost in offered.workers]
    assert 2 <= offered.peak_in_flight <= 6
    for clock, ahead_s in zip(offered.clocks, (0, cluster.ahead_s), strict=True):
        assert len(clock.readings) >= 2
        for reading in clock.readings:
            assert abs(reading.offset_ns - ahead_s * 1e9) <= reading.uncertainty_ns
        assert "" == clock.problem(limit_ms=50.0)
    host = HTTPConnection(reference.removeprefix("http://"))
    host.request("GET", "/stamps")
    stamps = json.loads(host.getresponse().read())
    host.close()
    samples = offered.samples.measured
    late_ms = [
        (arrived - stamps[name]) / 1e6
        for name, arrived in zip(samples.request_id, samples.first_token_ns, strict=True)
    ]
    known_to_ms = max(clock.uncertainty_ms for clock in offered.clocks)
    assert min(late_ms) > -2 * known_to_ms  # nothing arrives before it was written
    assert sorted(late_ms)[len(late_ms) // 2] < 50


def test_the_same_seed_gives_the_same_requests_from_machines_as_from_here(offered_to, raw_server, machines):
    def asked(name, where=None):
        server = raw_server(
            lambda connection, _: connection.sendall(HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY))
        )
        offered = offered_to(server.url, OPEN, where, name)
        host = server.url.removeprefix("http://").encode()
        return offered, sorted(request.replace(host, b"HOST") for request in server.requests)

    alone, here = asked("alone")
    shared, there = asked("shared", replace(machines, workers=2))
    assert here == there
    assert alone.counters == shared.counters
    assert sorted(alone.samples.request_id) == sorted(shared.samples.request_id)
    assert ["lm1", "lm2", "lm1", "lm2"] == [cost.machine for cost in shared.workers]
    ours, theirs = (
        dict(
            zip(
                one.samples.measured.request_id, one.samples.measured.scheduled_ns - one.start_ns, strict=True
            )
        )
        for one in (alone, shared)
    )
    known_to_ms = max(clock.uncertainty_ms for clock in shared.clocks)
    assert max(abs(theirs[name] - moment) / 1e6 for name, moment in ours.items()) < 4 * known_to_ms


def test_what_a_lost_machine_measured_is_kept_and_the_load_is_unknown(tmp_path, reference, cluster):
    cluster.say("add", "lost")
    machines = LoadMachines(ray=cluster.address, nodes=("lm2", "lost"))
    endpoint = Endpoint(entity="n1/gpu0", url=reference, model="m")
    path = tmp_path / "s.parquet"
    with start_load(ENDLESS, [endpoint], label="t", samples_path=path, seed=1, machines=machines) as running:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            now = running.live_state
            if now is not None and now.start_ns and running.finished_count >= 50:
                break
            time.sleep(0.01)
        assert now.start_ns > 0
        assert running.recent()
        cluster.say("kill", "lost")
        offered = running.finish(60)
    assert Reason.DIED == offered.reason
    assert offered.detail.startswith("1 of 2 workers: load machine lost was lost")
    assert ["lost"] == [cost.machine for cost in offered.workers if cost.died]
    assert offered.counters.reconciles
    samples = offered.samples.measured
    by_worker = {int(name.rpartition("-r")[2]) % 2 for name in samples.request_id}
    assert ({0, 1}, {"lm2", "lost"}) == (by_worker, {clock.machine for clock in offered.clocks})
    span_s = (samples.scheduled_ns.max() - samples.scheduled_ns.min()) / 1e9
    assert span_s < 60  # on one axis, although the clocks are 1,000 s apart
    assert not running.running


def test_a_machine_removes_what_a_killed_one_left_and_nothing_of_a_living_one(tmp_path, monkeypatch):
    code = "from rackgate.loadgen.remote.load_machine import LoadMachine; m = LoadMachine(); print(); input()"
    held = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "env": {**os.environ, "TMPDIR": str(tmp_path)},
    }
    living, killed = (subprocess.Popen([sys.executable, "-c", code], **held) for _ in range(2))
    with living, killed:
        for one in (living, killed):
            one.stdout.readline()
        assert 2 == len(list(tmp_path.iterdir()))
        killed.kill()
        killed.wait()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        machine = LoadMachine()
        assert 2 == len(list(tmp_path.iterdir()))
        machine.close()
        living.communicate(b"\n", 30)
    assert [] == list(tmp_path.iterdir())


def test_a_load_that_is_ended_early_keeps_what_was_measured_on_every_machine(tmp_path, reference, machines):
    endpoint = Endpoint(entity="n1/gpu0", url=reference, model="m")
    path = tmp_path / "s.parquet"
    with start_load(ENDLESS, [endpoint], label="t", samples_path=path, seed=1, machines=machines) as running:
        deadline = time.monotonic() + 30
        while running.finished_count < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        running.cancel()
        offered = running.finish(30)
    assert (None, True) == (offered.reason, offered.counters.reconciles)
    assert offered.counters.scheduled == len(offered.samples.measured) >= 20
    assert offered.counters.outcomes["ok"] > 0


def test_machines_that_are_not_there_are_refused_before_the_first_request(
    offered_to, raw_server, cluster, monkeypatch
):
    server = raw_server(lambda _connection, _number: "close")
    with pytest.raises(NoLoadMachines, match="has no node lm9; it has head, lm1, lm2"):
        offered_to(server.url, LOAD, LoadMachines(ray=cluster.address, nodes=("lm9",)))
    with pytest.raises(NoLoadMachines, match=r"no Ray cluster answers at 127.0.0.1:9 .*ray start --head"):
        offered_to(server.url, LOAD, LoadMachines(ray="127.0.0.1:9"))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NoLoadMachines, match=r"pip install 'pytest-rackgate\[ray\]'"):
        offered_to(server.url, LOAD, LoadMachines(ray=cluster.address))
    assert 0 == server.connections


def test_the_command_offers_from_machines_and_tells_their_clocks(reference, cluster, capsys):
    trace = Path(__file__).parents[1] / "traces" / "mooncake.jsonl"  # that lm1 gets with its plan
    few = ["load", reference, "--model", "m", "--trace", str(trace), "--trace-speed", "10", "--json"]
    status = main([*few, "--ray", cluster.address, "--ray-nodes", "lm1"])
    said = json.loads(capsys.readouterr().out)
    assert (0, {"ok": 3}) == (status, said["counters"]["outcomes"])
    assert ["lm1"] == [clock["machine"] for clock in said["instrument"]["clocks"]]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--ray", "127.0.0.1:9"], "no Ray cluster answers at 127.0.0.1:9"),
        (["--ray", "head"], "'head' is not HOST:PORT"),
        (["--ray-nodes", "a"], "--ray-nodes needs --ray"),
    ],
)
def test_the_command_refuses_machines_that_are_not_there(options, problem, reference, capsys):
    assert 4 == main(["load", reference, "--model", "m", *options])
    assert problem in capsys.readouterr().err


@pytest.fixture
def simulated(tmp_path):
    """One simulated engine."""
    with start_rack(
        RackSettings(nodes=1, cards=1, scenario="healthy", seed=1), log_dir=tmp_path / "logs"
    ) as rack:
        yield rack.engines[0]


@pytest.fixture
def accepted(tmp_path, simulated):
    """Run the soak of an acceptance from load machines; return the finished process."""

    def accepted(ray, second="lm2"):
        target, rows = tmp_path / "rack.toml", tmp_path / "slo.toml"
        target.write_text(
            f"""
            [target]
            name = "rack"
            model = "{simulated.spec.model}"
            [[node]]
            name = "n1"
            [[engine]]
            name = "e"
            launcher = "remote"
            url = "{simulated.url}"
            node = "n1"
            pool = "cpu"
            [load_machines]
            ray = "{ray}"
            nodes = ["lm1", "{second}"]
            """
        )
        rows.write_text(
            """
            [load.mix]
            reason = "a test"
            rate_per_s = 200.0
            duration_s = 2.0
            prompt_tokens = 20
            output_tokens = 5
            """
        )
        return subprocess.run(
            [sys.executable, "-m", "pytest", "--pyargs", "rackgate_suites", "-m", "rack_acceptance",
             f"--rack-target={target}", f"--rack-slo={rows}", "--rack-stage=soak", "--rack-out=run"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return accepted


def test_an_acceptance_takes_its_load_from_the_machines_and_records_their_clocks(accepted, cluster, tmp_path):
    done = accepted(cluster.address)
    assert (tmp_path / "run").exists(), done.stdout + done.stderr
    loads = [
        record for record in read_records(tmp_path / "run/evidence/records.jsonl") if record["kind"] == "load"
    ]
    assert loads, done.stdout
    assert [["lm1", "lm2"]] == [[clock["machine"] for clock in load["clocks"]] for load in loads]
    assert [True] == [load["reconciles"] for load in loads]
    assert "Load machines" in (tmp_path / "run/views/default/report.html").read_text()


def test_a_load_whose_machine_is_gone_when_it_begins_is_unknown_and_says_so(accepted, cluster, tmp_path):
    done = accepted(cluster.address, "gone")
    records = list(read_records(tmp_path / "run/evidence/records.jsonl"))
    (load,) = [record for record in records if record["kind"] == "load"]
    assert (1, "unreachable", []) == (done.returncode, load["reason"], load["clocks"])
    assert "has no node gone; it has head, lm1, lm2" in load["detail"]
    rows = {record["slo"]: record for record in records if record["kind"] == "verdict"}
    assert ("UNKNOWN", "unreachable") == (
        rows["soak.error_rate"]["verdict"],
        rows["soak.error_rate"]["reason"],
    )


def test_an_acceptance_without_its_load_machines_is_refused(accepted, tmp_path):
    done = accepted("127.0.0.1:9")
    assert (4, False) == (done.returncode, (tmp_path / "run").exists())
    assert "rack.toml: load_machines: no Ray cluster answers at 127.0.0.1:9" in done.stdout + done.stderr
