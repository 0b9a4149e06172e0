"""Against a real OpenSSH server on loopback, straight and through a jump host."""

import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ssh_server import SERVER, ssh_servers
from waiting import until

from rackgate.hosts.facts.host import read_host
from rackgate.hosts.runner import Command, LocalRunner
from rackgate.hosts.ssh import SshRunner
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Expect, Node, NodeAccess
from rackgate.nouns.target import Target
from rackgate.preflight.hosts import inspect_hosts, who_answered
from rackgate.preflight.nodes import measured_nodes
from rackgate.telemetry.assembly import assemble, plan_of
from rackgate.telemetry.cards.nvidia_smi_source import SmiSource
from rackgate.telemetry.host_source import HostSource
from rackgate.telemetry.kernel.remote_source import RemoteKernelLog

pytestmark = pytest.mark.slow

HOSTNAME = Command(argv=("cat", "/proc/sys/kernel/hostname"))


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    if SERVER is None:
        pytest.fail("openssh-server is missing: make system")
    with ssh_servers(tmp_path_factory.mktemp("ssh")) as running:
        yield running


@pytest.fixture
def runner_of(servers):
    opened = []

    def make(destination, **options):
        opened.append(SshRunner(destination, config=servers.config, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.mark.parametrize("destination", ["node", "behind"])
def test_a_command_runs_there(runner_of, destination):
    ran = runner_of(destination).run(HOSTNAME, 20.0)
    assert (ran.ok, ran.text) == (True, Path("/proc/sys/kernel/hostname").read_text())


def test_words_arrive_as_they_are(runner_of):
    ran = runner_of("node").run(Command(argv=("printf", "%s|", "a b", "$HOME", "x;y", "'")), 20.0)
    assert ran.text == "a b|$HOME|x;y|'|"


def test_many_commands_share_one_connection(servers, runner_of):
    runner = runner_of("node")
    before = (servers.folder / "node.log").read_text().count("Accepted publickey")
    for _ in range(5):
        assert runner.run(HOSTNAME, 20.0).ok
    after = (servers.folder / "node.log").read_text().count("Accepted publickey")
    assert after - before == 1


def test_all_sources_and_looks_at_a_node_share_one_connection_that_ends_with_them(servers):
    node = Node(
        name="n1",
        cards=(Card(name="n1/gpu0", node="n1", index=0),),
        access=NodeAccess(ssh="node", cards="nvidia-smi"),
    )
    target = Target(
        name="rack", model="m", grade="accelerator", nodes=(node,), ssh_config=str(servers.config)
    )
    before = (servers.folder / "node.log").read_text()
    sources = assemble(target, plan_of(target))
    assert [SmiSource, HostSource, RemoteKernelLog] == [type(source) for source in sources]
    try:
        with ThreadPoolExecutor(max_workers=4) as pool:
            look = pool.submit(lambda: measured_nodes(target, inspect_hosts(target)))
            polled = list(pool.map(lambda source: source.poll(), sources))
            assert ("clock_offset_s", "n1") in look.result().probes
    finally:
        for source in sources:
            source.close()
    assert all(polled)
    log = servers.folder / "node.log"
    assert 1 == log.read_text()[len(before) :].count("Accepted publickey")
    assert until(lambda: "Disconnected from user" in log.read_text()[len(before) :])


def test_files_come_in_one_answer(runner_of, tmp_path):
    for name in ("one", "two words"):
        (tmp_path / name).write_text(f"text of {name}\nwithout an end")
    found = runner_of("node").read([f"{tmp_path}/*", "/nonexistent/file"], 20.0)
    assert {path: ran.text for path, ran in found.items()} == {
        f"{tmp_path}/one": "text of one\nwithout an end",
        f"{tmp_path}/two words": "text of two words\nwithout an end",
    }


def test_facts_of_a_remote_host_are_those_of_a_local_one(runner_of):
    there, here = read_host(runner_of("node"), 20.0), read_host(LocalRunner(), 20.0)
    same = ("kernel", "os", "nvidia_loaded", "nouveau_loaded", "memory_kib", "shm_bytes")
    assert {name: here[name].value for name in same} == {name: there[name].value for name in same}
    assert here["kernel"].value


def test_a_missing_tool_is_told_from_a_failure(runner_of):
    missing = runner_of("node").run(Command(argv=("no-such-tool", "--version")), 20.0)
    assert (missing.reason, "no-such-tool is not installed on node" in missing.detail) == (
        Reason.TOOL_MISSING,
        True,
    )
    failed = runner_of("node").run(Command(argv=("false",)), 20.0)
    assert (failed.ok, failed.reason, failed.status) == (False, None, 1)


def test_a_command_that_hangs_ends_at_its_deadline(runner_of):
    runner = runner_of("node")
    runner.run(HOSTNAME, 20.0)
    ran = runner.run(Command(argv=("sleep", "600")), 1.0)
    assert ran.reason == Reason.TIMEOUT
    assert runner.run(HOSTNAME, 20.0).ok


def test_a_node_that_stops_answering_gives_its_reason_in_time(servers, runner_of):
    runner = runner_of("node", connect_timeout_s=1.0)
    runner.run(HOSTNAME, 20.0)
    servers.stop("node")
    try:
        begin = time.monotonic()
        ran = runner.run(HOSTNAME, 1.0)
        facts = read_host(runner, 1.0)
        waited_s = time.monotonic() - begin
    finally:
        servers.resume("node")
    assert ran.reason == Reason.TIMEOUT
    assert {fact.reason for fact in facts.values()} == {Reason.TIMEOUT}
    assert waited_s < 60


def test_a_look_at_hosts_waits_once_for_the_one_that_hangs_and_says_who_answered(servers, runner_of):
    keeper = runner_of("node")  # the connection stands already, so that nothing refuses at once
    assert keeper.run(HOSTNAME, 20.0).ok
    nodes = (
        Node(name="here", access=NodeAccess(local=True)),
        Node(name="hung", access=NodeAccess(ssh="node"), expect=Expect(container_image="i")),
    )
    target = Target(
        name="rack",
        model="m",
        grade="accelerator",
        nodes=nodes,
        ssh_config=str(servers.config),
        storage_path="/models",
    )
    servers.stop("node")
    try:
        begin = time.monotonic()
        look = inspect_hosts(target)
        waited_s = time.monotonic() - begin
    finally:
        servers.resume("node")
    assert waited_s < 15  # log, storage and containers of a host that says nothing are not waited for too
    assert who_answered(look).startswith("1 of 2 hosts answered; hung: ")
    mute = ("storage_read_mib_s", "cards_not_in_container")
    assert {Reason.TIMEOUT} == {look.probes[name, "hung"].reason for name in mute}


def test_an_unknown_host_key_is_refused(servers, runner_of, tmp_path):
    kept = servers.known_hosts.read_text()
    servers.known_hosts.write_text("")
    try:
        ran = runner_of("node").run(HOSTNAME, 20.0)
    finally:
        servers.known_hosts.write_text(kept)
    assert ran.reason == Reason.UNREACHABLE
    assert "host key" in ran.detail.lower()


def test_a_changed_host_key_is_refused(servers, runner_of):
    kept = servers.known_hosts.read_text()
    servers.known_hosts.write_text(
        kept.replace(servers.host_line("node").split()[2], servers.host_line("jump").split()[2])
    )
    try:
        ran = runner_of("node").run(HOSTNAME, 20.0)
    finally:
        servers.known_hosts.write_text(kept)
    assert ran.reason == Reason.UNREACHABLE


def test_a_key_that_is_not_accepted_is_no_permission(servers, runner_of):
    keys = servers.folder / "authorized_keys"
    kept = keys.read_text()
    keys.write_text("")
    try:
        ran = runner_of("node").run(HOSTNAME, 20.0)
    finally:
        keys.write_text(kept)
    assert (ran.reason, "give this user's key access" in ran.detail) == (Reason.NO_PERMISSION, True)


def test_nothing_that_listens_is_unreachable(runner_of):
    ran = runner_of("nowhere").run(HOSTNAME, 20.0)
    assert (ran.reason, "no SSH server listens" in ran.detail) == (Reason.UNREACHABLE, True)


def test_sockets_of_the_users_own_are_kept(servers, runner_of):
    folder = tempfile.mkdtemp(prefix="rg-")  # the path of a socket must be short
    servers.write_config(f"  ControlMaster auto\n  ControlPath {folder}/%C\n  ControlPersist 5")
    try:
        runner = runner_of("node", connect_timeout_s=7.0)
        assert runner.run(HOSTNAME, 20.0).ok
        kept = list(Path(folder).iterdir())
        runner.close()
        assert (1, kept) == (len(kept), list(Path(folder).iterdir()))
    finally:
        subprocess.run(["ssh", "-F", servers.config, "-O", "exit", "node"], check=False, timeout=20)
        servers.write_config()
        shutil.rmtree(folder)
