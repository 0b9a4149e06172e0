import json
import os
import signal
import socket
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from rackgate.engines import launch_records
from rackgate.engines.launchers.filling import filled_in
from rackgate.engines.launchers.ports import free_port, port_taken
from rackgate.engines.launchers.processes.launcher import process
from rackgate.engines.leftovers import leftovers
from rackgate.engines.probe import probe_engine
from rackgate.nouns.engine import CardRemovable, Killable, LaunchFailed, Partitionable, Pausable

pytestmark = pytest.mark.slow


@pytest.fixture
def launch(tmp_path):
    return lambda spec: process(spec, run_id="run-1", log_dir=str(tmp_path))


def failure(launch, spec):
    start = time.monotonic()
    with pytest.raises(LaunchFailed) as failed, launch(spec):
        pytest.fail("it came up")
    return failed.value, time.monotonic() - start


def who(engine):
    with urllib.request.urlopen(f"{engine.url}/who", timeout=10) as answer:
        return json.load(answer)


def test_an_engine_is_yielded_after_a_token_and_gone_afterwards(launch, process_spec, gone, own_state_folder):
    with launch(process_spec()) as engine:
        assert who(engine)["pid"] == engine.handle.pid
        assert engine.cold_start_s > 0
        assert [f"{engine.handle.pid}"] == [
            str(json.loads(path.read_text())["pid"]) for path in own_state_folder.glob("*.json")
        ]
    assert gone(engine.handle.pid)
    assert gone(engine.handle.keeper_pid)
    assert list(own_state_folder.glob("*")) == []


def test_the_command_gets_port_host_model_and_name_and_keeps_other_braces():
    values = {"port": "1", "host": "h", "model": "m/{port}", "name": "n"}
    assert filled_in(("--p={port}", "{host}", "{model}", '{"a": {}}', "{other}"), values) == [
        "--p=1",
        "h",
        "m/{port}",
        '{"a": {}}',
        "{other}",
    ]


def test_the_environment_holds_what_was_named_and_no_secret_besides(launch, process_spec, monkeypatch):
    monkeypatch.setenv("NAMED_TOKEN", "given")
    monkeypatch.setenv("OTHER_TOKEN", "kept back")
    spec = process_spec(env={"FLAG": "on"}, env_from=["NAMED_TOKEN"], cards=["node1/gpu0", "node1/gpu3"])
    with launch(spec) as engine:
        seen = who(engine)["environment"]
    assert (seen["FLAG"], seen["NAMED_TOKEN"], seen["CUDA_VISIBLE_DEVICES"]) == ("on", "given", "0,3")
    assert "OTHER_TOKEN" not in seen


def test_a_named_variable_that_is_not_set_is_told_before_anything_starts(launch, process_spec, monkeypatch):
    monkeypatch.delenv("ABSENT_TOKEN", raising=False)
    failed, _ = failure(launch, process_spec(env_from=["ABSENT_TOKEN"]))
    assert (
        str(failed)
        == "engine tiny: the process could not be started: not set in our environment: ABSENT_TOKEN"
    )
    assert failed.hint == "export ABSENT_TOKEN"


def test_a_process_that_exits_ends_the_wait_at_once_with_code_last_line_and_hint(launch, process_spec):
    command = ["sh", "-c", "echo loading; echo 'torch.OutOfMemoryError: CUDA out of memory' >&2; exit 3"]
    failed, took_s = failure(launch, process_spec(command=command, ready_timeout_s=600))
    assert took_s < 60
    assert "ended with exit code 3 after" in str(failed)
    assert str(failed).endswith("it said last: torch.OutOfMemoryError: CUDA out of memory")
    assert (failed.layer, failed.log_tail) == ("model", "loading\ntorch.OutOfMemoryError: CUDA out of memory")
    assert failed.hint.startswith("the model with its cache does not fit")


def test_a_process_that_is_killed_while_it_loads_is_told_by_its_signal(launch, process_spec):
    failed, _ = failure(launch, process_spec(command=["sh", "-c", "kill -9 $$"], ready_timeout_s=600))
    assert "ended with signal SIGKILL" in str(failed)


def test_a_program_that_does_not_exist_is_told(launch, process_spec):
    failed, _ = failure(launch, process_spec(command=["/no/such/engine"]))
    assert "the process could not be started: /no/such/engine: No such file or directory" in str(failed)


def test_a_working_directory_that_does_not_exist_is_told(launch, process_spec):
    failed, _ = failure(launch, process_spec(cwd="/no/such/folder"))
    assert "/no/such/folder" in str(failed)


def test_a_port_that_is_taken_is_told_and_the_other_server_is_not_judged(launch, process_spec, served):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        failed, _ = failure(launch, process_spec(port=port))
    assert f"127.0.0.1 port {port}: address already in use" in str(failed)
    assert "another process has that port" in failed.hint


def test_a_wanted_port_is_used(launch, process_spec):
    port = free_port()
    with launch(process_spec(port=port)) as engine:
        assert f"http://127.0.0.1:{port}" == engine.url


def test_a_wrong_model_ends_the_wait_early_and_names_the_served_one(launch, process_spec, gone):
    failed, took_s = failure(launch, process_spec(model="other", ready_timeout_s=600))
    assert took_s < 60
    assert failed.layer == "model"
    assert "it serves tiny" in str(failed)


def test_an_engine_that_hangs_is_given_up_at_the_deadline(launch, process_spec):
    failed, _ = failure(launch, process_spec("--fault", "hang", ready_timeout_s=1.5))
    assert failed.layer == "service"
    assert str(failed).startswith("engine tiny: no token within 1.5 s: ")
    assert "(/health says 200)" in str(failed)


def test_an_engine_that_never_listens_is_no_network_fault(launch, process_spec):
    failed, _ = failure(launch, process_spec("--delay-s", "60", ready_timeout_s=0.5))
    assert failed.layer == "service"
    assert "it runs and does not listen" in failed.hint


def test_stopping_ends_the_whole_group_with_grandchildren_that_ignore_sigterm(
    launch, process_spec, tmp_path, gone
):
    child_file = tmp_path / "child"
    with launch(process_spec("--child", str(child_file), stop_timeout_s=0.5)) as engine:
        child = int(child_file.read_text())
        assert not gone(child)
    assert gone(engine.handle.pid)
    assert gone(child)


def test_an_engine_that_ignores_sigterm_is_killed_at_the_deadline(launch, process_spec, gone):
    with launch(process_spec("--fault", "ignore_term", stop_timeout_s=0.5)) as engine:
        pass
    assert gone(engine.handle.pid)


def test_the_engine_is_gone_when_the_body_raises(launch, process_spec, gone):
    with pytest.raises(KeyboardInterrupt), launch(process_spec()) as engine:
        raise KeyboardInterrupt
    assert gone(engine.handle.pid)


def test_a_killed_engine_comes_back_on_its_port(launch, process_spec, tmp_path, gone, until):
    child_file = tmp_path / "child"
    with launch(process_spec("--child", str(child_file))) as engine:
        first, child = engine.handle.pid, int(child_file.read_text())
        assert isinstance(engine.handle, Killable)
        engine.handle.kill()
        until(lambda: not engine.handle.alive() and gone(child))
        assert engine.handle.exit_status == -signal.SIGKILL
        engine.handle.restart()
        assert engine.handle.alive()
        assert first != engine.handle.pid

        def answers():
            try:
                return who(engine)["pid"] == engine.handle.pid
            except OSError:
                return False

        until(answers)
    assert gone(engine.handle.pid)


def test_an_engine_that_a_thread_started_outlives_the_thread(launch, process_spec):
    with ThreadPoolExecutor(1) as pool:
        opened = launch(process_spec())
        engine = pool.submit(opened.__enter__).result()
    try:
        assert who(engine)["pid"] == engine.handle.pid
    finally:
        opened.__exit__(None, None, None)


def test_the_log_is_kept(launch, process_spec, tmp_path):
    with launch(
        process_spec(command=["sh", "-c", f"echo begin; exec {' '.join(_server(process_spec))}"])
    ) as engine:
        assert str(tmp_path / "tiny.log") == engine.log_path
    assert (tmp_path / "tiny.log").read_text() == "begin\n"


def _server(process_spec):
    return process_spec().settings["command"]


def test_when_the_owner_is_killed_the_group_ends_by_itself(owner, process_spec, tmp_path, gone, until):
    child_file = tmp_path / "child"
    process_, facts = owner(process_spec("--child", str(child_file), stop_timeout_s=0.3), tmp_path)
    child = int(child_file.read_text())
    process_.kill()
    until(lambda: gone(facts["pid"]) and gone(child) and gone(facts["keeper"]))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_when_the_owner_is_told_to_end_nothing_is_left(owner, process_spec, tmp_path, gone, until, number):
    process_, facts = owner(process_spec(stop_timeout_s=0.3), tmp_path)
    process_.send_signal(number)
    until(lambda: gone(facts["pid"]) and gone(facts["keeper"]))
    assert process_.wait(timeout=20) != 0


@pytest.fixture
def orphan(owner, process_spec, tmp_path, gone, until):
    """Kill an owner and its keeper; return the engine's facts and the grandchild that outlives them."""
    child_file = tmp_path / "child"
    process_, facts = owner(process_spec("--child", str(child_file)), tmp_path)
    child = int(child_file.read_text())
    assert leftovers.find_leftovers() == []
    os.kill(facts["keeper"], signal.SIGKILL)
    process_.kill()
    process_.wait()
    until(lambda: gone(facts["pid"]))
    assert not gone(child)
    return {**facts, "child": child, "owner": process_.pid}


def test_what_a_killed_owner_and_keeper_leave_is_found_and_removed(orphan, gone, until):
    (left,) = leftovers.find_leftovers()
    assert ("process", str(orphan["pid"]), "tiny", "run-of-owner", orphan["owner"]) == (
        left.kind,
        left.ident,
        left.engine,
        left.run_id,
        left.owner_pid,
    )
    assert "1 process of `" in left.detail
    assert leftovers.remove(left)
    until(lambda: gone(orphan["child"]))
    assert leftovers.find_leftovers() == []


def _launch_record(pid, **changes):
    facts = {
        "token": "0" * 32,
        "engine": "e",
        "run_id": "r",
        "pid": pid,
        "pid_start": launch_records.process_start(pid),
        "keeper": 1,
        "keeper_start": 1,
        "owner": 1,
        "owner_start": 1,
        "boot": launch_records.boot_id(),
        "command": "sleep",
    }
    return launch_records.Launch(**{**facts, **changes})


@pytest.mark.parametrize("changes", [{"pid_start": 1}, {"boot": "another"}])
def test_a_recycled_pid_is_never_killed(own_state_folder, launch, process_spec, changes):
    with launch(process_spec()) as innocent:
        path = launch_records.remember(_launch_record(innocent.handle.pid, **changes))
        assert leftovers.find_leftovers() == []
        assert not path.exists()
        assert innocent.handle.alive()


def test_a_launch_whose_owner_lives_is_no_leftover(launch, process_spec, own_state_folder):
    with launch(process_spec()) as engine:
        own = {"owner": os.getpid(), "owner_start": launch_records.process_start(os.getpid())}
        launch_records.remember(_launch_record(engine.handle.pid, **own))
        assert leftovers.find_leftovers() == []
        assert engine.handle.alive()


def test_a_torn_file_in_the_state_folder_is_no_obstacle(own_state_folder):
    launch_records.state_folder()
    (own_state_folder / "torn.json").write_text('{"pid": ')
    assert leftovers.find_leftovers() == []


def test_the_members_of_a_process_engine_know_each_other_and_are_killed_one_by_one(
    launch, process_spec, gone, until, tmp_path
):
    spec = process_spec(
        members=[
            {"name": "front", "role": "router", "env": {"PEER": "{rank-1.url}"}},
            {"name": "rank-1", "role": "worker", "cards": ["node1/gpu1"]},
        ]
    )
    with launch(spec) as engine:
        group = engine.handle
        assert group.roles == {"tiny-rank-1": "worker", "tiny-front": "router"}
        peer = who(engine)["environment"]["PEER"]
        until(lambda: port_taken("127.0.0.1", int(peer.rpartition(":")[2])))  # the front alone is waited for
        with urllib.request.urlopen(f"{peer}/who", timeout=10) as answer:
            seen = json.load(answer)
        assert (seen["pid"], seen["environment"]["CUDA_VISIBLE_DEVICES"]) == (
            group.parts["tiny-rank-1"].pid,
            "1",
        )
        group.kill()
        until(lambda: not group.alive())
        group.restart()
        assert all(part.alive() for part in group.parts.values())
    assert all(gone(part.pid) for part in group.parts.values())
    assert sorted(path.name for path in tmp_path.glob("*.log")) == ["tiny-front.log", "tiny-rank-1.log"]


def test_a_member_that_ends_while_we_wait_ends_the_wait_with_its_name(launch, process_spec, gone):
    spec = process_spec(
        "--fault",
        "hang",
        ready_timeout_s=600,
        members=[{"name": "a"}, {"name": "b", "command": ["sh", "-c", "echo no card; exit 5"]}],
    )
    failed, took_s = failure(launch, spec)
    assert took_s < 60
    assert "the process tiny-b ended with exit code 5 after" in str(failed)
    assert failed.log_tail == "no card"


def test_limits_hold_for_the_engine(launch, process_spec):
    with launch(process_spec(limits={"nofile": 512, "core": 0})) as engine:
        limits = Path(f"/proc/{engine.handle.pid}/limits").read_text().splitlines()
    assert [line.split()[3:5] for line in limits if "open files" in line] == [["512", "512"]]


def test_a_secret_of_a_file_reaches_the_engine_and_not_our_tail_of_its_log(launch, process_spec, tmp_path):
    (tmp_path / "key").write_text("file-secret-value\n")
    command = ["sh", "-c", "echo key=$KEY_OF_FILE; exit 3"]
    failed, _ = failure(
        launch, process_spec(command=command, secret_files={"KEY_OF_FILE": str(tmp_path / "key")})
    )
    assert failed.log_tail == "key=[redacted]"


def test_a_paused_engine_does_not_answer_and_goes_on_afterwards(launch, process_spec):
    with launch(process_spec()) as engine:
        engine.handle.pause()
        assert probe_engine(engine.url, "tiny", {}, deadline_s=0.5).layer_failed == "service"
        engine.handle.resume()
        assert probe_engine(engine.url, "tiny", {}, deadline_s=20).ok


def test_a_process_can_be_paused_and_lose_a_card_but_has_no_network_of_its_own_to_cut(launch, process_spec):
    with launch(process_spec()) as engine:
        assert isinstance(engine.handle, Pausable)
        assert isinstance(engine.handle, CardRemovable)
        assert not isinstance(engine.handle, Partitionable)


def test_a_catalogue_engine_of_another_protocol_is_refused(launch, process_spec):
    failed, _ = failure(launch, replace(process_spec(engine="llama-cpp"), protocol="triton"))
    assert "llama.cpp server speaks openai, the target says triton" in str(failed)
    assert 'protocol = "openai"' in failed.hint


def test_an_engine_comes_back_on_its_port_without_a_card_and_with_it_again(launch, process_spec, until):
    def seen(engine):
        until(lambda: probe_engine(engine.url, "tiny", {}, deadline_s=1).ok)
        return who(engine)["environment"]["CUDA_VISIBLE_DEVICES"]

    with launch(process_spec(cards=["node1/gpu2", "node1/gpu5"])) as engine:
        engine.handle.restart_without("node1/gpu2")
        assert seen(engine) == "5"
        engine.handle.restart_without()
        assert seen(engine) == "2,5"
