from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rackgate.batch.runner import RunnerOptions

INPUTS = Path(__file__).parent.parent / "cases" / "inputs"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self):
        engine = self.server.engine
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with engine.lock:
            engine.bodies.append(body)
            engine.headers.append(dict(self.headers))
            number = len(engine.bodies)
            status, headers, answer = engine.respond(number, body)
        time.sleep(engine.delay_s)
        if engine.hold_from is not None and number >= engine.hold_from:
            engine.opened.wait(timeout=30)
        data = json.dumps(answer).encode() if isinstance(answer, dict) else answer
        self.send_response(status)
        for name, value in {"content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class TinyEngine(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        # A killed runner leaves half a request or resets its connection: that is the point of these tests.
        if not isinstance(sys.exc_info()[1], ConnectionError | json.JSONDecodeError):
            super().handle_error(request, client_address)


def answer(body):
    text = "v" + body["messages"][0]["content"].removeprefix("n ")
    return {"choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}]}


class Engine:
    """A chat engine on loopback that answers `n 3` with `v3`, unless `script` says otherwise.

    From request `hold_from` on, answers wait until `opened` is set.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.bodies, self.headers = [], []
        self.delay_s = 0.0
        self.script = {}
        self.hold_from = None
        self.opened = threading.Event()
        self.server = TinyEngine(("127.0.0.1", 0), Handler)
        self.server.engine = self
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def respond(self, number, body):
        return self.script.get(number) or (200, {}, answer(body))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def texts(self):
        return [body["messages"][0]["content"] for body in self.bodies]

    def close(self):
        self.opened.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def engine():
    engine = Engine()
    yield engine
    engine.close()


@pytest.fixture
def put(tmp_path):
    """Write the input of a case to in.jsonl and return it."""

    def put(case: str) -> bytes:
        data = (INPUTS / f"{case}.input.jsonl").read_bytes()
        (tmp_path / "in.jsonl").write_bytes(data)
        return data

    return put


@pytest.fixture
def options_for(tmp_path):
    """Return a runner's options for in.jsonl and out.jsonl, without long waits."""

    def options_for(engine, **more) -> RunnerOptions:
        return RunnerOptions(
            input_path=tmp_path / "in.jsonl",
            output_path=tmp_path / "out.jsonl",
            url=engine if isinstance(engine, str) else engine.url,
            model="m",
            **{"retry_cap_s": 0.01, **more},
        )

    return options_for
