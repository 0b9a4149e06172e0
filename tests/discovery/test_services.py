import json
import os
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_server import Answer, serving

from rackgate.discovery.ports import listeners, owners, parents
from rackgate.discovery.services import find_services
from rackgate.hosts.runner import LocalRunner
from rackgate.simulator.rack import start_rack
from rackgate.simulator.settings import RackSettings

V4 = "  0: {address}:1F90 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 {inode} 1 0 100\n"


def listing(models):
    return Answer(200, json.dumps({"object": "list", "data": [{"id": model} for model in models]}))


def at(url):
    """Return what is recognised at one address of ours, whatever else listens on this machine."""
    port = int(url.rsplit(":", 1)[1].split("/")[0])
    return next((one for one in find_services(LocalRunner()) if one.port == port), None)


def test_engines_and_exporters_that_listen_are_recognised_with_their_models_and_owners():
    with start_rack(RackSettings(nodes=1, cards=1)) as rack:
        engine, exporter = at(rack.engines[0].url), at(rack.target.nodes[0].exporter_url)
    assert ("engine", ("rackgate/simulated-8b",)) == (engine.kind, engine.models)
    assert "rackgate.simulator" in engine.owner
    assert ("exporter", rack.target.nodes[0].exporter_url) == (exporter.kind, exporter.url)


def test_triton_is_recognised_by_its_index():
    def answer(request):
        index = request.method == "POST" and request.path == "/v2/repository/index"
        return Answer(200, '[{"name": "ensemble"}]') if index else Answer(404)

    with serving(answer) as url:
        found = at(url)
    assert ("engine", "triton", ("ensemble",)) == (found.kind, found.protocol, found.models)


def test_what_wants_a_key_first_is_no_engine_yet():
    with serving(lambda _: Answer(401, '{"error": "key"}')) as url:
        assert "locked" == at(url).kind


@pytest.mark.parametrize("body", ["", "<html>hello</html>", "[]", '{"data": "none"}', '{"data": [1, {}]}'])
def test_another_web_server_is_nothing_of_ours(body):
    with serving(lambda _: Answer(200, body)) as url:
        assert at(url) is None


def test_a_port_that_never_answers_holds_nobody_up():
    with socket.create_server(("127.0.0.1", 0)) as silent, serving(lambda _: listing(["m"])) as url:
        accepted = []
        threading.Thread(target=lambda: accepted.append(silent.accept()), daemon=True).start()
        assert ("m",) == at(url).models
        assert at(f"http://127.0.0.1:{silent.getsockname()[1]}") is None
        for connection, _ in accepted:
            connection.close()


def test_only_listening_sockets_count_and_any_address_is_this_machine():
    table = V4.format(address="00000000", state="0A", inode=77)
    table += V4.format(address="0100007F", state="01", inode=78)
    assert [("127.0.0.1", 8080, 77)] == [(one.host, one.port, one.inode) for one in listeners(table)]


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("0100007F", "127.0.0.1"),
        ("0B00000A", "10.0.0.11"),
        ("0" * 32, "127.0.0.1"),
        ("0" * 24 + "01000000", "[::1]"),
        ("0000000000000000FFFF00000B00000A", "10.0.0.11"),
    ],
)
def test_addresses_are_read_in_the_kernels_spelling(address, host):
    (found,) = listeners(V4.format(address=address, state="0A", inode=1))
    assert host == found.host


@given(st.text(), st.lists(st.text(alphabet="0123456789ABCDEF: ", max_size=60)))
def test_any_table_of_sockets_is_read_without_harm(text, lines):
    assert all(0 <= one.port <= 65535 for one in listeners(text, "\n".join(lines)))


def test_the_command_of_a_process_is_told_without_its_options(tmp_path):
    process = tmp_path / "77"
    (process / "fd").mkdir(parents=True)
    (process / "fd" / "3").symlink_to("socket:[5]")
    (process / "cmdline").write_bytes(b"vllm\0serve\0llama\0--api-key\0s3cret\0")
    (process / "environ").write_bytes(b"KEY=s3cret\0CUDA_VISIBLE_DEVICES=2,3\0")
    owner = owners({5}, tmp_path)[5]
    assert (77, "vllm serve llama", ("2", "3")) == (owner.pid, owner.command, owner.visible)


def test_every_process_has_its_parent():
    assert os.getppid() == parents()[os.getpid()]
