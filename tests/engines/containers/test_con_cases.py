"""The field cases of containers and of engines under faults, each against its expected answer."""

import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from rackgate.engines.launchers.containers.create import create_options
from rackgate.engines.launchers.containers.daemon import choose_daemon
from rackgate.engines.launchers.containers.devices import CardView, compare_views, one_request, wanted_cards
from rackgate.engines.launchers.containers.engine import status_ended
from rackgate.engines.launchers.containers.launch import ContainerLaunch
from rackgate.engines.launchers.containers.settings import shared_memory_problem
from rackgate.engines.launchers.filling import with_defaults
from rackgate.engines.launchers.members import parts_of
from rackgate.engines.launchers.outcome import ended, log_end, log_tail, start_refused
from rackgate.engines.launchers.processes.launcher import process
from rackgate.engines.launchers.settings import size_bytes
from rackgate.engines.launchers.signatures import explain
from rackgate.engines.probe import EngineProbe, probe_engine
from rackgate.engines.readiness import wait_until_ready
from rackgate.nouns.engine import LaunchFailed
from rackgate.nouns.target import EngineSpec, Member

CASES = Path(__file__).parents[2] / "cases"
EXPECTED = {
    name: case["expected"] for name, case in json.loads((CASES / "expected.json").read_text()).items()
}


def given(name):
    return json.loads((CASES / "inputs" / name).read_text())


def spec(cards=(), **settings):
    members = (Member(node="n1", cards=tuple(cards)),) if cards else ()
    return EngineSpec(name="e", launcher="container", model="m", members=members, settings=settings)


@pytest.mark.parametrize(
    ("text", "driver"), list(zip(given("CON-01.json"), EXPECTED["CON-01"]["driver"], strict=True))
)
def test_con_01_a_daemon_without_a_gpu_driver_is_the_environment_with_the_toolkit_as_hint(text, driver):
    failure = start_refused(spec(), "container", text, "")
    assert failure.explanation.name == EXPECTED["CON-01"]["class"]
    assert failure.explanation.facts["driver"] == driver
    assert (failure.explanation.cause, failure.layer) == ("environment", "service")
    assert "container toolkit" in failure.hint
    assert isinstance(failure, LaunchFailed)


@pytest.mark.parametrize(
    ("text", "devices"), list(zip(given("CON-02.json"), EXPECTED["CON-02"]["devices"], strict=True))
)
def test_con_02_unknown_cdi_devices_are_named_with_the_folders_to_look_at(text, devices):
    failure = start_refused(spec(), "container", text, "")
    assert failure.explanation.name == EXPECTED["CON-02"]["class"]
    assert failure.explanation.facts["devices"].split(", ") == devices
    assert failure.explanation.cause == "environment"
    assert all(device in failure.hint for device in devices)
    assert "/etc/cdi" in failure.hint
    assert "/var/run/cdi" in failure.hint


@pytest.mark.parametrize("name", EXPECTED["CON-03"]["requests"])
def test_con_03_a_request_has_ids_or_a_count(name):
    want = given("CON-03.json")[name]["want"]
    request = one_request(count=-1) if want == "all" else one_request(ids=want)
    spelled = {"count": "Count", "device_ids": "DeviceIDs"}
    sent = {spelled[key]: value for key, value in request.items() if key in spelled}
    assert sent == EXPECTED["CON-03"]["requests"][name]


@pytest.mark.parametrize("name", EXPECTED["CON-03"]["invalid"])
def test_con_03_both_or_neither_is_refused(name):
    case = given("CON-03.json")[name]
    with pytest.raises(ValueError, match="never both or neither"):
        one_request(ids=case.get("device_ids", ()), count=case.get("count"))


def test_con_03_the_cards_in_the_container_are_counted_after_the_start():
    two = CardView(exit_code=0, said="GPU 0: NVIDIA L40S (UUID: GPU-0)\nGPU 1: NVIDIA L40S (UUID: GPU-1)\n")
    none = CardView(exit_code=0, said="No devices found.\n")
    request = one_request(ids=["0", "1"])
    assert compare_views(two, None, wanted_cards(request)) == ("", "")
    assert compare_views(none, None, wanted_cards(request))[0] == "cards_not_as_asked"
    assert compare_views(none, None, wanted_cards(one_request(count=-1)))[0] == "cards_not_as_asked"


@pytest.mark.parametrize("name", ["engine_a", "engine_b"])
def test_con_04_address_and_port_come_from_the_same_binding(name):
    """The daemon is told both, and what it publishes is where we call: test_container.py."""
    expected = EXPECTED["CON-04"]
    urls = {"0.0.0.0": expected[name], "::": expected["ipv6_alternative"][name]}
    for binding in given("CON-04.json")[name]["8000/tcp"]:
        loopback = {} if binding["HostIp"] == "0.0.0.0" else {"bind_address": "::1"}
        url = reached_at(host_port=int(binding["HostPort"]), **loopback)
        assert url == urls[binding["HostIp"]]
        assert url not in expected["must_not_be"]


def reached_at(**settings):
    """Where a run calls an engine whose container it starts on this machine with these settings."""
    own = spec(image="i", docker_host="unix:///nowhere", **settings)
    (part,) = parts_of(own)
    with ExitStack() as stack:
        return ContainerLaunch(own, "r", Path(), print, stack).url_of(part)


class Scripted:
    """A container whose state follows the script, one look after the other."""

    def __init__(self, states):
        self.states, self.polls = states, 0

    def look(self):
        self.polls = min(self.polls + 1, len(self.states))
        return self.states[self.polls - 1]

    def ended(self):
        return status_ended(self.look()["status"])

    def ask(self, _left_s):
        state = self.states[max(self.polls - 1, 0)]
        ready = "startup complete" in state.get("log", "")
        return EngineProbe() if ready else EngineProbe(layer_failed="network", message="refused")


def test_con_05_a_container_that_exited_ends_the_wait_at_once():
    case, expected = given("CON-05.json"), EXPECTED["CON-05"]["a"]
    box, start = Scripted(case["a"]), time.monotonic()
    assert wait_until_ready(box.ask, box.ended, case["timeout_s"]) is None
    assert time.monotonic() - start < expected["waited_s_max"]
    assert box.polls == expected["stops_at_poll"]
    last = case["a"][-1]
    failure = ended(spec(), "container", f"exit code {last['ExitCode']}", 1.0, log_end(last["log"].encode()))
    assert "exit code 1" in str(failure)
    assert failure.log_tail == last["log"]
    assert failure.explanation.name == "engine_out_of_memory"


def test_con_05_created_and_restarting_are_no_ends():
    box = Scripted(given("CON-05.json")["b"])
    assert wait_until_ready(box.ask, box.ended, 30).ok
    assert box.polls == len(box.states)


def test_con_06_a_log_with_cut_characters_is_read():
    raw = bytes.fromhex((CASES / "inputs" / "CON-06.log.hex").read_text().replace("\n", " "))
    text, expected = log_tail(raw), EXPECTED["CON-06"]
    assert text.count("\ufffd") == expected["replacement_chars"]
    assert ("Application startup complete" in text) is expected["ready_line_found"]


def test_con_09_a_container_that_lost_its_cards_is_no_hardware_fault():
    case, expected = given("CON-09.json"), EXPECTED["CON-09"]
    inside = CardView(exit_code=case["container"]["rc"], said=case["container"]["out"])
    node = CardView(exit_code=case["host"]["rc"], said=case["host"]["out"])
    assert (inside.cards, node.cards) == (expected["container_gpus"], expected["host_gpus"])
    name, message = compare_views(inside, node, 2)
    assert name == expected["class"]
    failure = start_refused(spec(), "container", message, "")
    assert failure.explanation.cause == "environment"
    assert "create the container again" in failure.hint


@pytest.mark.parametrize("name", EXPECTED["CON-10"])
def test_con_10_the_engines_host_is_the_daemons(name, tmp_path):
    case = given("CON-10.json")[name]
    environ = {"HOME": str(tmp_path)}
    if case.get("DOCKER_HOST"):
        environ["DOCKER_HOST"] = case["DOCKER_HOST"]
    if case.get("active_context_host"):
        write_context(tmp_path / ".docker", "rack", case["active_context_host"])
    assert choose_daemon(environ=environ).host == EXPECTED["CON-10"][name]


def write_context(folder, name, host, tls=()):
    import hashlib

    ident = hashlib.sha256(name.encode()).hexdigest()
    (folder / "contexts" / "meta" / ident).mkdir(parents=True)
    meta = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}}
    (folder / "contexts" / "meta" / ident / "meta.json").write_text(json.dumps(meta))
    for file in tls:
        path = folder / "contexts" / "tls" / ident / "docker" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (folder / "config.json").write_text(json.dumps({"currentContext": name}))


def test_con_10_a_context_brings_its_certificates(tmp_path):
    write_context(tmp_path, "rack", "tcp://10.0.0.2:2376", tls=("ca.pem", "cert.pem", "key.pem"))
    daemon = choose_daemon(environ={"DOCKER_CONFIG": str(tmp_path)})
    assert (daemon.origin, daemon.is_private, daemon.is_local) == ("context rack", True, False)
    assert sorted(path.name for path in Path(daemon.tls_folder).iterdir()) == [
        "ca.pem",
        "cert.pem",
        "key.pem",
    ]


def test_con_12_small_shared_memory_is_configuration():
    explained = explain((CASES / "inputs" / "CON-12.log").read_text())
    assert (explained.name, explained.cause) == ("shared_memory", "configuration")
    assert "no hardware fault" in explained.hint


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "nim", "tgi", "triton", None])
def test_con_12_engines_of_several_cards_get_shared_memory(engine):
    own = {"engine": engine} if engine else {}
    cards = ["n1/gpu0", "n1/gpu1"]
    filled = spec(cards, **with_defaults({"image": "i", **own}, in_container=True, cards=2))
    assert shared_memory_problem(filled) == ""
    options = create_options(plan_of(filled))
    assert options.get("ipc_mode") == "host" or size_bytes(options["shm_size"]) >= 2**30


def test_con_12_too_little_of_it_is_refused_before_the_start():
    assert "too small for an engine of 2 cards" in shared_memory_problem(
        spec(["n1/gpu0", "n1/gpu1"], image="i", shm_size="64m")
    )


def plan_of(filled):
    from rackgate.engines.launchers.containers.create import ContainerPlan
    from rackgate.engines.launchers.containers.images import Image
    from rackgate.engines.launchers.secrets import WrappedStart

    return ContainerPlan(
        spec=filled,
        name="e",
        image=Image(name="i", ident="sha256:0", digest="sha256:0"),
        daemon=choose_daemon("unix:///nowhere"),
        labels={"rackgate.launch": "x"},
        environment={},
        files={},
        start=WrappedStart(entrypoint=None, command=(), environment={}),
        inside_port=8000,
        bind=("127.0.0.1", 1),
    )


def test_eng_01_a_hung_engine_with_a_fine_health_page_is_not_healthy(served, until):
    expected = EXPECTED["ENG-01"]
    url = served("--fault", "hang")
    until(lambda: probe_engine(url, "tiny", {}, deadline_s=1.0).layer_failed == "service")
    start = time.monotonic()
    probe = probe_engine(url, "tiny", {}, deadline_s=1.0)
    assert time.monotonic() - start < expected["detected_within_s"]
    assert probe.ok is expected["healthy"]
    assert probe.message.startswith("no token from")
    assert probe.message.endswith("before the deadline (/health says 200)")


def test_eng_01_it_is_never_yielded_as_ready(process_spec, tmp_path):
    hung = process_spec("--fault", "hang", ready_timeout_s=1.5)
    with (
        pytest.raises(LaunchFailed, match="no token within"),
        process(hung, run_id="r", log_dir=str(tmp_path)),
    ):
        pytest.fail("it came up")
