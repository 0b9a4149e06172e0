"""Servers that do exactly what a test says, on real sockets."""

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import uvloop

from rackgate.loadgen.instrument.reference import reference_server
from rackgate.loadgen.instrument.reference_server import Script
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.results.columns import COUNTS, MOMENTS
from rackgate.loadgen.worker.load_generator import LoadGenerator
from rackgate.loadgen.worker.spool import sample_of_line
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Limits, Load
from rackgate.nouns.route import Route
from rackgate.nouns.sample import Outcome, Sample

ON_BOTH_LOOPS = (
    "test_cases_over_transport", "test_clock", "test_connections", "test_fault_matrix", "test_identity",
    "test_protocols_on_sockets", "test_transport",
)  # fmt: skip
"""What goes over sockets runs on asyncio's loop and on uvloop's, which is that of workers."""


def pytest_generate_tests(metafunc):
    if "loop" in metafunc.fixturenames and metafunc.module.__name__.split(".")[-1] in ON_BOTH_LOOPS:
        metafunc.parametrize("loop", ["asyncio", "uvloop"], indirect=True)


class RawServer:
    """Accepts connections and hands each request on one of them to `handle(connection, number)`."""

    def __init__(self, handle, host="127.0.0.1", port=0):
        self._handle = handle
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=256)
        self._lock = threading.Lock()
        self._open = []
        self.connections = 0
        self.tls = None
        self.handshake_s = 0.0
        self.requests = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            if self.tls is not None:
                time.sleep(self.handshake_s)
                connection = self.tls.wrap_socket(connection, server_side=True)
                self._open.append(connection)
            while request := self._read(connection):
                with self._lock:
                    self.requests.append(request)
                    number = len(self.requests) - 1
                if self._handle(connection, number) == "close":
                    break
        except OSError:
            pass
        connection.close()

    @staticmethod
    def _read(connection):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return b""
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")), 0)
        while len(body) < length:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def close_listener(self):
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        self._listener.close()

    def close(self):
        self.close_listener()
        for connection in self._open:
            connection.close()


@pytest.fixture
def raw_server():
    """Start servers that answer by a function; all are gone afterwards."""
    started = []

    def start(handle, **at):
        started.append(RawServer(handle, **at))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def reply(raw_server):
    """Start a server that sends the same bytes to every request, then closes if it is told to."""

    def start(data, *, close=False):
        def handle(connection, _number):
            connection.sendall(data)
            return "close" if close else ""

        return raw_server(handle)

    return start


@pytest.fixture
def reference():
    """The URL of a quick reference server."""
    with reference_server(Script(ttft_ms=(5.0, 8.0), gap_ms=2.0)) as url:
        yield url


LIMITS = Limits(connect_s=2.0, first_token_s=5.0, stall_s=5.0, total_s=10.0)
LOAD = Load(name="l", prompt_tokens=20, output_tokens=4, looks=(1,), limits=LIMITS)


@pytest.fixture
def loop(request):
    """What makes the loop that loads run on: asyncio's, or by its name (indirect) uvloop's, as in workers."""
    if getattr(request, "param", "asyncio") == "uvloop":
        return uvloop.new_event_loop
    return asyncio.new_event_loop


@pytest.fixture
def offer(loop):
    """Offer a load from this process and return its samples and result."""

    def run(
        url, *, transport=None, endpoint=None, warmup=False, requests=None, instrument_fault="", **changes
    ):
        load = replace(LOAD, **changes)
        endpoints = [
            Endpoint(entity=f"e{i}", url=u, model="m")
            for i, u in enumerate([url] if isinstance(url, str) else url)
        ]
        if endpoint:
            endpoints = [replace(one, **endpoint) for one in endpoints]
        plan = LoadPlan(
            load=load,
            endpoints=tuple(endpoints),
            label="t",
            spool="",
            seed=1,
            requests=requests or load.planned_requests or None,
            warmup=warmup,
            instrument_fault=instrument_fault,
        )
        lines = []

        async def go():
            return await LoadGenerator(plan, lines.append, transport=transport).run()

        with asyncio.Runner(loop_factory=loop) as runner:
            result = runner.run(go())
        return [sample_of_line(line) for line in b"".join(lines).splitlines()], result

    return run


@pytest.fixture
def ask(offer):
    """Send one request and return its sample."""

    def run(url, **changes):
        samples, _ = offer(url, **changes)
        (sample,) = samples
        return sample

    return run


@pytest.fixture(scope="session")
def samples_of():
    """Return the samples that a table was made of."""

    def value(field, cell):
        if field in (*MOMENTS, *COUNTS):
            return None if np.isnan(cell) else int(cell)
        if field in ("served_by", "token_source", "finish_reason"):
            return str(cell) or None
        if field == "outcome":
            return Outcome(cell)
        if field == "warnings":
            return tuple(cell)
        return tuple(cell.tolist()) if field == "token_ns" else getattr(cell, "item", lambda: cell)()

    def samples(table):
        names = [field.name for field in fields(Sample)]
        rows = zip(*(table.column(name) for name in names), strict=True)
        return [
            Sample(**{name: value(name, cell) for name, cell in zip(names, row, strict=True)}) for row in rows
        ]

    return samples


@pytest.fixture(scope="session")
def case_inputs():
    """The folder of the field cases' inputs."""
    return Path(__file__).parent.parent / "cases" / "inputs"


@pytest.fixture
def certificate(tmp_path):
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.fail("openssl is missing: make system")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", key, "-out", cert],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    return cert, key


@pytest.fixture
def tls_server(raw_server, certificate):
    """Start a server behind TLS: `url`, and `route`, which knows its authority."""

    def start(handle):
        server = raw_server(handle)
        server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.tls.load_cert_chain(*certificate)
        server.url = server.url.replace("http:", "https:")
        server.route = Route(ca_file=str(certificate[0]))
        return server

    return start
