from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from rackgate.simulator.card_state import new_state
from rackgate.simulator.processes import RackProcess, RackStartFailed
from rackgate.simulator.rack import start_rack
from rackgate.simulator.settings import RackSettings

SERVE = (
    "import sys; from rackgate.simulator.foreground import serve; "
    "from rackgate.simulator.settings import RackSettings; "
    "raise SystemExit(serve(RackSettings(), as_json=sys.argv[1] == 'json', stream=sys.stdout))"
)


@pytest.fixture
def served():
    started = []

    def start(style):
        process = subprocess.Popen(
            (sys.executable, "-c", SERVE, style),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_nothing_is_left_after_the_block(processes):
    with start_rack(RackSettings()) as rack:
        pids = [*rack.processes.values(), *(engine.handle.pid for engine in rack.engines)]
        assert len(set(pids)) == 7
        assert all(processes.alive(pid) for pid in pids)
        handle = rack.engines[0].handle
    assert not any(processes.alive(pid) for pid in pids)
    assert not handle.alive()
    assert handle.pid is None


def test_nothing_is_left_after_an_error_in_the_block(processes):
    pids = []

    def fail():
        with start_rack(RackSettings(nodes=1, cards=2)) as rack:
            pids.extend((*rack.processes.values(), *(engine.handle.pid for engine in rack.engines)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(pids) == 4
    assert not any(processes.alive(pid) for pid in pids)


def test_the_rack_dies_with_a_starter_that_is_killed(served, processes, wait_until):
    process = served("json")
    told = json.loads(process.stdout.readline())
    pids = processes.children_of(process.pid)
    assert told["pid"] == process.pid
    assert len(pids) == 7
    process.kill()
    wait_until(lambda: not any(processes.alive(pid) for pid in pids))


def test_engines_die_with_their_node(processes, wait_until):
    with start_rack(RackSettings(nodes=1, cards=2)) as rack:
        pids = [engine.handle.pid for engine in rack.engines]
        os.kill(rack.processes["node1"], signal.SIGKILL)
        wait_until(lambda: not any(processes.alive(pid) for pid in pids))


def test_serve_tells_one_line_of_json_and_ends_well_on_sigterm(served, processes, http):
    process = served("json")
    told = json.loads(process.stdout.readline())
    pids = processes.children_of(process.pid)
    assert sorted(told) == [
        *("controls", "engines", "exporters", "gateway"),
        *("model", "pid", "scenario"),
    ]
    assert http.get(f"{told['gateway']}/health").status_code == 200
    assert http.get(told["exporters"]["node1"]).status_code == 200
    states = http.get(f"{told['controls']['node1']}/control/engines").json()
    assert [state["engine"] for state in states] == ["node1/gpu0", "node1/gpu1"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert not any(processes.alive(pid) for pid in pids)


def test_serve_tells_a_person_what_to_try(served):
    process = served("text")
    lines = []
    while not lines or not lines[-1].startswith(b"Ctrl-C"):
        lines.append(process.stdout.readline())
        assert lines[-1], "serve ended early"
    text = b"".join(lines).decode()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert text.startswith("SIMULATED rack, 2x2")
    assert "curl -N http://127.0.0.1:" in text


def test_a_killed_engine_can_be_started_through_the_control_port(http, wait_until):
    with start_rack(RackSettings(nodes=1, cards=2)) as rack:
        first = rack.engine_states("node1")[1]
        os.kill(first["pid"], signal.SIGKILL)
        wait_until(lambda: rack.engine_states("node1")[1]["state"] == "stopped")
        url = f"{rack.control_urls['node1']}/control/engines"
        assert http.post(f"{url}/gpu1/start").status_code == 202
        assert http.post(f"{url}/gpu7/start").status_code == 404
        wait_until(lambda: rack.engine_states("node1")[1]["state"] == "serving")
        second = rack.engine_states("node1")[1]
    assert (second["port"], second["starts"]) == (first["port"], 2)
    assert second["pid"] != first["pid"]


def test_where_restarts_do_not_work_the_engine_stays_down(wait_until):
    with start_rack(RackSettings(scenario="no_restart")) as rack:
        handle = rack.engines[0].handle
        handle.kill()
        wait_until(lambda: not handle.alive())
        handle.restart()
        assert not handle.alive()


def test_an_immortal_engine_serves_on_after_the_kill(http, wait_until):
    with start_rack(RackSettings(scenario="immortal_engine")) as rack:
        engine = rack.engines[0]
        engine.handle.kill()
        wait_until(lambda: not engine.handle.alive())
        assert http.get(f"{engine.url}/health").status_code == 200


def test_a_process_that_does_not_come_up_is_told_with_its_log(tmp_path):
    descriptor = new_state(1)
    process = RackProcess("no_such_module", "node9", state=descriptor, log_dir=tmp_path)
    try:
        with pytest.raises(RackStartFailed, match=r"node9 ended before it was ready:[\s\S]*no_such_module"):
            process.read_ports(time.monotonic() + 30)
    finally:
        process.ask_to_end()
        process.ensure_ended(5.0)
        os.close(descriptor)
