"""Connections that a server closes or is slow to open: a request is sent once, waiting is not our lag."""

import time

import pytest

from rackgate.loadgen.http.http1 import HttpClient
from rackgate.loadgen.results.measurement_quality import (
    measurement_quality,
    shared_read_share,
    token_count_caveat,
)
from rackgate.loadgen.results.sample_file import read_samples, write_samples
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.nouns.load import Arrival, Limits, Origin
from rackgate.nouns.sample import Outcome

pytestmark = pytest.mark.slow

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
WHOLE = (
    b'data: {"choices":[{"delta":{"content":"yes"}}]}\n\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
ANSWER = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(WHOLE), WHOLE)
LAST = ANSWER.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


@pytest.mark.parametrize("wait_s", [0.0, 0.05])
def test_a_request_that_a_kept_connection_swallows_is_an_error_and_sent_once(offer, raw_server, wait_s):
    def handle(connection, number):
        if not number:
            connection.sendall(ANSWER)
            return ""
        time.sleep(wait_s)
        return "close"

    server = raw_server(handle)
    samples, result = offer(server.url, requests=2)
    assert [Outcome.OK, Outcome.TRUNCATED] == [sample.outcome for sample in samples]
    said = "connection closed by the peer, a kept one, before it answered; no request is sent twice"
    assert said == samples[1].detail
    assert (2, 1) == (len(server.requests), server.connections)
    assert (2, {"ok": 1, "truncated": 1}) == (result["started"], result["outcomes"])


class Dozing(HttpClient):
    """Sleeps before it sends: what arrives meanwhile has not been read from the socket."""

    def send(self, request, sink, *, connect_s):
        time.sleep(0.05)
        super().send(request, sink, connect_s=connect_s)


def test_a_connection_that_was_closed_before_the_request_is_not_used(offer, raw_server):
    def handle(connection, _number):
        connection.sendall(ANSWER)
        return "close"

    server = raw_server(handle)
    samples, _ = offer(server.url, requests=3, transport=Dozing)
    assert [(Outcome.OK, ())] * 3 == [(sample.outcome, sample.warnings) for sample in samples]
    assert (3, 3) == (len(server.requests), server.connections)


@pytest.mark.parametrize("rate_per_s", [None, 4.0])
def test_a_slow_handshake_counts_against_the_server_and_not_as_our_lag(offer, tls_server, rate_per_s):
    def handle(connection, _number):
        connection.sendall(LAST)
        return "close"

    server = tls_server(handle)
    server.handshake_s = 0.15
    shape = {"arrival": Arrival.CONSTANT, "rate_per_s": rate_per_s, "duration_s": 1.0} if rate_per_s else {}
    samples, _ = offer(server.url, requests=4, endpoint={"route": server.route}, **shape)
    assert [Outcome.OK] * 4 == [sample.outcome for sample in samples]
    assert [None] == [sample.connect_ms for sample in samples if sample.connect_ms is None]  # opened ahead
    for sample in samples:
        if sample.connect_ms is not None:
            assert sample.connect_ms > 140
            assert sample.ttft_ms() > sample.connect_ms
        assert sample.schedule_lag_ms < 100


class Unprepared(HttpClient):
    """Opens no connection ahead."""

    async def prepare(self, connections, *, connect_s):
        pass


def test_the_first_token_is_waited_for_from_the_moment_that_the_connection_stood(ask, tls_server):
    server = tls_server(lambda connection, _number: (connection.sendall(LAST), "close")[1])
    server.handshake_s = 0.6
    shape = {"arrival": Arrival.CONSTANT, "rate_per_s": 1.0, "duration_s": 1.0}
    limits = Limits(connect_s=2.0, first_token_s=0.4, stall_s=0.4, total_s=5.0)
    sample = ask(server.url, transport=Unprepared, endpoint={"route": server.route}, limits=limits, **shape)
    assert Outcome.OK is sample.outcome
    assert sample.ttft_ms() > 500


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (b"Retry-After: 7\r\n", 7),
        (b"Date: Wed, 21 Oct 2026 07:28:00 GMT\r\nRetry-After: Wed, 21 Oct 2026 07:28:30 GMT\r\n", 30),
        (b"Date: Wed, 21 Oct 2026 07:28:00 GMT\r\nRetry-After: Wed, 21 Oct 2026 07:27:00 GMT\r\n", 0),
        (b"Retry-After: 0.2\r\n", 1),
        (b"Retry-After: soon\r\n", None),
        (b"", None),
    ],
)
def test_a_wait_that_is_asked_for_is_kept_in_seconds(ask, reply, header, seconds):
    data = b"HTTP/1.1 503 Busy\r\n%bContent-Length: 4\r\n\r\nbusy" % header
    sample = ask(reply(data).url)
    assert (Outcome.REFUSED, seconds) == (sample.outcome, sample.retry_after_s)


@pytest.mark.parametrize(("together", "shared"), [((1, 1, 1), 0), ((2, 1), 2), ((3,), 3), ((1, 2, 2), 4)])
def test_chunks_of_one_read_share_its_arrival_and_say_so(offer, raw_server, tmp_path, together, shared):
    piece = b'data: {"choices":[{"delta":{"content":"yes"}}]}\n\n'
    end = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

    def handle(connection, _number):
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for number in together:
            time.sleep(0.03)
            connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) * number)
        connection.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(end), end))
        return ""

    samples, _ = offer(raw_server(handle).url, requests=2)
    chunks = sum(together)
    assert [(chunks, shared)] * 2 == [(len(one.token_ns), one.shared_chunks) for one in samples]
    write_samples(SampleTable.from_samples(samples, Origin.SENT), tmp_path / "x")
    table = read_samples(tmp_path / "x")
    assert ([chunks] * 2, [shared] * 2) == (list(table.chunks), list(table.shared_chunks))
    told = measurement_quality(table)
    assert (2 * chunks, 2 * shared) == (told["chunks"], told["shared_chunks"])
    assert {"chunks": 2} == told["token_sources"]
    assert shared / chunks == shared_read_share(table)
    assert "tokens of 2 of 2 answers are a count of chunks" == token_count_caveat(table)
