"""One route for loads and for every ordinary call: a private authority, a client certificate, a proxy."""

import argparse
import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from rackgate.cli import main
from rackgate.config.problems import ConfigError
from rackgate.config.target_file import parse_target
from rackgate.engines.route_options import add_route_options, arguments_of, route_of
from rackgate.loadgen.results.sample_file import read_samples
from rackgate.nouns.route import DIRECT, Route
from rackgate.simulator.rack import start_rack
from rackgate.simulator.settings import RackSettings

pytestmark = pytest.mark.slow


def openssl(*arguments):
    found = shutil.which("openssl")
    if found is None:
        pytest.fail("openssl is missing: make system")
    subprocess.run([found, *map(str, arguments)], check=True, capture_output=True, timeout=30)


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """A folder with `ca.pem`, and certificates of a server and of a client that it has signed."""
    folder = tmp_path_factory.mktemp("papers")
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    ca = (folder / "ca.pem", folder / "ca-key.pem")
    openssl("req", "-x509", *new, "-days", 2, "-subj", "/CN=private", "-out", ca[0], "-keyout", ca[1])
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl(
            "req", *new, "-subj", f"/CN={name}", "-out", folder / name, "-keyout", folder / f"{name}-key.pem"
        )
        openssl(
            *("x509", "-req", "-days", 2, "-in", folder / name, "-CA", ca[0], "-CAkey", ca[1]),
            *("-CAcreateserial", "-extfile", folder / "names", "-out", folder / f"{name}.pem"),
        )
    return folder


def pump(source, sink, change=lambda data: data):
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(change(data))
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class Doorman:
    """Listens; each connection is let in by `admit(connection)`, which returns the one to join it with."""

    def __init__(self, admit):
        self._admit = admit
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def change(self, data):
        """What a client says, as the other side is told it."""
        return data

    def _listen(self):
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(raw,), daemon=True).start()

    def _join(self, raw):
        with raw, suppress(OSError):
            outer, inner = self._admit(raw)
            with outer, inner:
                back = threading.Thread(target=pump, args=(inner, outer))
                back.start()
                pump(outer, inner, self.change)
                back.join()

    def close(self):
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class Proxy(Doorman):
    """A forward proxy: CONNECT, and requests for whole URLs. `asked` holds the request lines."""

    def __init__(self, refuse=""):
        self.asked = []
        self._refuse = refuse
        super().__init__(self._open)

    def _open(self, outer):
        head = b""
        while b"\r\n\r\n" not in head:
            piece = outer.recv(65536)
            if not piece:
                raise OSError("nothing asked")
            head += piece
        method, target, _ = head.split(b"\r\n")[0].decode().split()
        if self._refuse:
            outer.sendall(f"HTTP/1.1 {self._refuse}\r\nContent-Length: 0\r\n\r\n".encode())
            raise OSError("refused")
        if method == "CONNECT":
            self.asked.append(f"{method} {target}")
            host, port = target.split(":")
            inner = socket.create_connection((host, int(port)))
            outer.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            where = urlsplit(target)
            inner = socket.create_connection((where.hostname, where.port))
            inner.sendall(self.change(head))
        return outer, inner

    def change(self, data):
        """Requests are for whole URLs here, and for paths there."""
        found = re.match(rb"(GET|POST) http://[^/]+(\S+)", data)
        if found is None:
            return data
        self.asked.append(found[0].decode())
        return found[1] + b" " + found[2] + data[found.end() :]


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """A simulated engine."""
    settings = RackSettings(nodes=1, cards=1, scenario="healthy", seed=1)
    with start_rack(settings, log_dir=tmp_path_factory.mktemp("logs")) as rack:
        yield rack.engines[0]


@pytest.fixture
def guarded(engine, papers):
    """The engine's https address, behind a server that asks for a client certificate of its own authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=papers / "ca.pem")
    context.load_cert_chain(papers / "server.pem", papers / "server-key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    where = urlsplit(engine.url)

    def admit(raw):
        outer = context.wrap_socket(raw, server_side=True)
        return outer, socket.create_connection((where.hostname, where.port))

    door = Doorman(admit)
    yield f"https://{door.address}"
    door.close()


@pytest.fixture
def proxy():
    """A forward proxy."""
    running = Proxy()
    yield running
    running.close()


@pytest.fixture
def shown(papers):
    """The files of a client that is let in."""
    return {
        "ca": str(papers / "ca.pem"),
        "certificate": str(papers / "client.pem"),
        "key": str(papers / "client-key.pem"),
    }


def load(capsys, url, model, *arguments):
    few = ("--requests", "6", "--output-tokens", "8", "--warmup", "1", "--concurrency", "2", "--audit")
    status = main(["load", url, "--model", model, *few, "--json", *arguments])
    said = capsys.readouterr()
    return status, json.loads(said.out) if said.out else said.err


@pytest.mark.parametrize("through", ["nothing", "proxy"])
def test_a_load_and_the_counters_beside_it_go_by_one_route(
    capsys, monkeypatch, guarded, engine, shown, proxy, through
):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # of the environment nothing is taken
    route = [text for name, file in shown.items() for text in (f"--{name}", file)]
    more = ["--proxy", f"http://{proxy.address}"] if through == "proxy" else []
    status, said = load(capsys, guarded, engine.spec.model, *route, *more)
    assert (0, {"ok": 6}) == (status, said["counters"]["outcomes"])
    assert said["caches"]["prefix_hit_share"] is not None
    lines = {f"CONNECT {guarded.removeprefix('https://')}"}
    assert (lines if through == "proxy" else set()) == set(proxy.asked)


def test_in_the_clear_a_proxy_reads_the_requests_of_both_paths(capsys, engine, proxy):
    status, said = load(
        capsys, engine.url, engine.spec.model, "--proxy", f"http://{proxy.address}", "--header", "X-Who=us"
    )
    assert (0, {"ok": 6}) == (status, said["counters"]["outcomes"])
    assert said["caches"]["prefix_hit_share"] is not None
    asked = ("POST {}/v1/chat/completions", "GET {}/metrics", "GET {}/v1/models")
    assert {line.format(engine.url) for line in asked} == set(proxy.asked)


@pytest.mark.parametrize("left_out", ["ca", "certificate"])
def test_without_a_part_of_the_route_both_paths_fail_and_say_so(capsys, guarded, engine, shown, left_out):
    kept = {"ca": shown["ca"]} if left_out == "certificate" else {**shown}
    kept.pop(left_out, None)
    route = [text for name, file in kept.items() for text in (f"--{name}", file)]
    _, said = load(capsys, guarded, engine.spec.model, *route)
    assert "ok" not in said["counters"]["outcomes"]
    assert said["caches"]["prefix_hit_share"] is None


def test_a_proxy_that_refuses_is_a_connect_error_with_its_words(capsys, guarded, engine, shown, tmp_path):
    refusing = Proxy("403 Forbidden")
    route = [text for name, file in shown.items() for text in (f"--{name}", file)]
    kept = tmp_path / "x.parquet"
    _, said = load(
        capsys,
        guarded,
        engine.spec.model,
        *route,
        "--proxy",
        f"http://{refusing.address}",
        "--samples",
        str(kept),
    )
    refusing.close()
    assert {"connect_error": 6} == said["counters"]["outcomes"]
    (detail,) = set(read_samples(kept).measured.column("detail"))
    assert detail == f"the proxy gives no tunnel to {guarded.removeprefix('https://')}: HTTP 403"


def target_text(url, model, shown, proxy=""):
    route = "\n".join(f'{name} = "{value}"' for name, value in {**shown, "proxy": proxy}.items() if value)
    return f"""
        [target]
        name = "rack"
        model = "{model}"
        [[node]]
        name = "n1"
        cards = 1
        [[engine]]
        name = "e"
        launcher = "remote"
        url = "{url}"
        cards = ["n1/gpu0"]
        [engine.route]
        {route}
        """


@pytest.mark.parametrize("through", ["nothing", "proxy"])
def test_an_acceptance_reaches_a_guarded_engine_with_every_call(
    pytester, run, guarded, engine, shown, proxy, through
):
    """Start, probes, API and provenance: behind an authority that nobody else knows, and through a proxy."""
    pytester.makeconftest("")
    by = f"http://{proxy.address}" if through == "proxy" else ""
    pytester.path.joinpath("rack.toml").write_text(target_text(guarded, engine.spec.model, shown, by))
    outcome = run(
        *("--pyargs", "rackgate_suites", "-m", "rack_acceptance", "--rack-out=run"),
        *("--rack-target=rack.toml", "--rack-stage=preflight"),
    )
    assert "simulated" == outcome.end["grade"]
    verdicts = {record["slo"]: record["verdict"] for record in outcome.of("verdict")}
    asked = ("preflight.engine_reachable", "preflight.model_served", "preflight.first_request")
    assert dict.fromkeys(asked, "PASS") == {name: verdicts[name] for name in asked}
    assert "PASS" == verdicts["preflight.api_chat"]
    assert (through == "proxy") is bool(proxy.asked)


@pytest.mark.parametrize(
    ("route", "words"),
    [
        ({"ca": "/nowhere/ca.pem"}, "/nowhere/ca.pem: No such file or directory"),
        ({"key": "/nowhere/k"}, "key: without a certificate it shows nothing"),
        ({"proxy": "https://p:1"}, "proxy: must be http://HOST:PORT"),
        ({"proxy": "http://me:pass@p:1"}, "must not hold a user or a password"),
        ({"headers": {"X-A": "b\r\nX-C: d"}}, "headers: 'X-A' holds a line end"),
        ({"cas": "x"}, "cas: unknown key; did you mean 'ca'?"),
    ],
)
def test_a_route_that_leads_nowhere_is_refused_before_anything_runs(route, words):
    table = {"name": "e", "launcher": "remote", "url": "https://h", "route": route}
    data = {"target": {"name": "r", "model": "m", "vantage": "endpoint"}, "engine": [table]}
    with pytest.raises(ConfigError) as raised:
        parse_target(data, "rack.toml", {"remote": lambda _settings: []})
    assert words in "\n".join(raised.value.problems)


def test_a_route_on_a_command_line_is_the_route_in_a_file(shown):
    route = Route(
        ca_file=shown["ca"], certificate_file=shown["certificate"], key_file=shown["key"],
        proxy="http://p:3128", headers={"X-Tenant": "a=b"},
    )  # fmt: skip
    parser = argparse.ArgumentParser()
    add_route_options(parser)
    assert route == route_of(parser.parse_args(arguments_of(route)))
    assert DIRECT == route_of(parser.parse_args(arguments_of(DIRECT)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ca", "/nowhere/ca.pem"], "/nowhere/ca.pem: No such file"),
        (["--proxy", "socks5://p"], "--proxy: 'socks5://p' is not http://host:port"),
        (["--header", "X-A"], "--header: 'X-A' is not NAME=VALUE"),
    ],
)
def test_a_bad_route_is_refused_before_the_first_request(capsys, arguments, words):
    status, said = load(capsys, "https://127.0.0.1:9", "m", *arguments)
    assert 4 == status
    assert words in said
