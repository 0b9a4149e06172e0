"""The knee of an engine whose capacity is known, searched by `rackgate load` and told with its curve."""

import json
import threading
import time

import pytest

from rackgate.cli import main

pytestmark = pytest.mark.slow

SERVICE_S = 0.02
CAPACITY_PER_S = 1 / SERVICE_S
"""Requests are served one after the other, each in exactly so long."""

FRAMES = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"%x\r\n%b\r\n0\r\n\r\n" % (len(FRAMES), FRAMES)
)
PAGE = """# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total {queries}
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total {hits}
"""


class Engine:
    """A server of one request at a time, which counts what it would find in a cache of whole prompts."""

    def __init__(self, raw_server, *, hits_share=0.0):
        self._free_at = 0.0
        self._lock = threading.Lock()
        self._hits_share = hits_share
        self._tokens = 0
        self.server = raw_server(self._handle)
        self.url = self.server.url

    def _handle(self, connection, number):
        request = self.server.requests[number]
        if request.startswith(b"GET"):
            page = PAGE.format(queries=self._tokens, hits=self._tokens * self._hits_share).encode()
            found = request.startswith(b"GET /metrics ")
            status = b"200 OK" if found else b"404 Not Found"
            connection.sendall(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(page), page))
            return ""
        with self._lock:
            self._tokens += len(request.partition(b"\r\n\r\n")[2].split())
            self._free_at = max(self._free_at, time.monotonic()) + SERVICE_S
            done_at = self._free_at
        time.sleep(max(0.0, done_at - time.monotonic()))
        connection.sendall(ANSWER)
        return ""

    @property
    def bodies(self):
        return [
            request.partition(b"\r\n\r\n")[2] for request in self.server.requests if request[:4] == b"POST"
        ]


SEARCH = [
    "--model", "m", "--find-knee", "--rate", "20", "--arrival", "constant", "--requests", "90",
    "--output-tokens", "1", "--resolution", "0.3", "--slo-e2e-ms", "300", "--warmup", "2", "--no-selfcheck",
]  # fmt: skip


def test_the_knee_is_where_the_engine_has_it(raw_server, capsys):
    engine = Engine(raw_server)
    status = main(["load", engine.url, *SEARCH, "--json"])
    knee = json.loads(capsys.readouterr().out)
    assert (0, "knee") == (status, knee["found"]), knee["probes"]
    assert 20 <= knee["rate_per_s"] <= 1.15 * CAPACITY_PER_S
    # 90 requests at a rate just above the capacity do not queue for 0.3 s yet.
    assert 0.95 * CAPACITY_PER_S <= knee["too_high_per_s"] <= 1.3 * knee["rate_per_s"]
    rates = [probe["rate_per_s"] for probe in knee["probes"]]
    assert [20.0, 40.0, 80.0] == rates[:3]
    by_rate = {probe["rate_per_s"]: probe for probe in knee["probes"]}
    assert "PASS" == by_rate[knee["rate_per_s"]]["verdict"]
    assert "FAIL" == by_rate[knee["too_high_per_s"]]["verdict"]
    assert knee["goodput_per_s"] == pytest.approx(knee["rate_per_s"], rel=0.06)
    assert len(engine.bodies) == len(set(engine.bodies)) > 150, "no probe repeats what another one asked"


def test_the_knee_is_told_in_words_with_its_curve(raw_server, capsys):
    engine = Engine(raw_server)
    assert 0 == main(["load", engine.url, *SEARCH, "--rate", "40", "--resolution", "1.0", "--seed", "5"])
    *curve, found, instrument, seed = capsys.readouterr().out.splitlines()
    assert ["40/s", "80/s"] == [line.split()[0] for line in curve]
    assert [True, False] == ["meets" in line for line in curve]
    assert "100.0% good of 90  [" in curve[0]
    assert curve[1].endswith("misses")
    assert "knee: 40/s with 95% inside E2E <= 300 ms, 80/s is too much" == found
    assert "the instrument: error of its TTFT not measured" == instrument
    assert "the same requests again: --seed 5" == seed


def test_the_load_generators_own_error_stands_beside_the_knee(raw_server, capsys):
    search = [one for one in SEARCH if one != "--no-selfcheck"]
    main(["load", Engine(raw_server).url, *search, "--rate", "20", "--most-rate", "20", "--json"])
    said = json.loads(capsys.readouterr().out)["instrument"]
    assert 10.0 == said["limit_ms"]
    assert 0 < said["error_p99_ms"] < 1000
    assert "requests to a reference server" in said["error_detail"]


def test_a_rate_whose_prompts_came_from_a_cache_is_no_point_of_the_curve(raw_server, capsys):
    engine = Engine(raw_server, hits_share=1.0)
    assert 1 == main(["load", engine.url, *SEARCH, "--prompt-tokens", "40"])
    out = capsys.readouterr().out
    assert "unresolved  aborted: at least " in out
    assert "of the prompt tokens came from a prefix cache" in out
    assert "unresolved: none" in out
