"""The client against servers that misbehave, on real sockets."""

import json
import socket
import struct
import threading
import time

import pytest

from rackgate.loadgen.http.http1 import HttpClient
from rackgate.loadgen.http.transport import Server
from rackgate.nouns.load import Limits
from rackgate.nouns.sample import Outcome

pytestmark = pytest.mark.slow

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
STOP = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'


def token(text="a"):
    return f"data: {json.dumps({'choices': [{'delta': {'content': text}}]})}\n\n".encode()


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


WHOLE = token("yes") + STOP + DONE
ANSWER = CHUNKED + chunk(WHOLE) + b"0\r\n\r\n"


def json_answer(body, status=b"200 OK", more=b""):
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b" % (
        status, more, len(body), body,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "data", "close"),
    [
        (Outcome.OK, ANSWER, False),
        (Outcome.OK, HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(WHOLE), WHOLE), False),
        (Outcome.OK, HEAD + b"\r\n" + WHOLE, True),
        (Outcome.OK, HEAD.replace(b"1.1", b"1.0") + b"\r\n" + WHOLE, True),
        (Outcome.OK, b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWER, False),
        (Outcome.OK, CHUNKED + chunk(WHOLE), True),
        (Outcome.OK, json_answer(b'{"choices":[{"message":{"content":"yes"}}]}'), False),
        (Outcome.TRUNCATED, HEAD + b"\r\n" + token(), True),
        (Outcome.TRUNCATED, CHUNKED + chunk(token()), True),
        (Outcome.TRUNCATED, HEAD + b"Content-Length: 9999\r\n\r\n" + token(), True),
        (Outcome.TRUNCATED, CHUNKED + chunk(token()) + b"0\r\n\r\n", False),
        (Outcome.TRUNCATED, CHUNKED, True),
        (Outcome.TRUNCATED, b"HTTP/1.1 200", True),
        (Outcome.TRUNCATED, b"", True),
        (Outcome.REFUSED, json_answer(b'{"error":"busy"}', b"429 Too Many Requests"), False),
        (Outcome.REFUSED, json_answer(b"", b"503 Service Unavailable"), False),
        (Outcome.HTTP_ERROR, json_answer(b"no", b"500 Internal Server Error"), False),
        (Outcome.HTTP_ERROR, json_answer(b"no", b"404 Not Found"), False),
        (Outcome.HTTP_ERROR, json_answer(b"", b"302 Found", b"Location: /x\r\n"), False),
        (Outcome.MALFORMED, b"SSH-2.0-OpenSSH_9.6\r\n", False),
        (Outcome.MALFORMED, b"\x00\x01\x02\x03" * 40, True),
        (Outcome.MALFORMED, b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", False),
        (Outcome.MALFORMED, CHUNKED + b"zz\r\n", False),
        (Outcome.MALFORMED, HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", False),
        (Outcome.MALFORMED, json_answer(b"<html>"), False),
        (Outcome.STREAM_ERROR, json_answer(b'{"error":{"message":"no"}}'), False),
    ],
)  # fmt: skip
def test_each_response_has_one_outcome(ask, reply, outcome, data, close):
    assert outcome == ask(reply(data, close=close).url).outcome


def test_a_port_that_nobody_listens_on_is_a_connect_error(ask):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    sample = ask(f"http://127.0.0.1:{port}")
    assert (sample.outcome, sample.sent_ns, sample.schedule_lag_ms) == (Outcome.CONNECT_ERROR, None, None)


def test_a_name_that_does_not_resolve_is_a_connect_error(ask):
    assert ask("http://nowhere.invalid:1").outcome == Outcome.CONNECT_ERROR


def test_a_connection_lost_mid_stream_keeps_what_came(ask, reply, case_inputs):
    sample = ask(reply(bytes.fromhex((case_inputs / "ENG-09.http.hex").read_text().strip()), close=True).url)
    assert sample.outcome == Outcome.TRUNCATED
    assert len(sample.token_ns) == 2
    assert sample.detail == "connection closed by the peer after 2 chunks: 'Half way'"
    assert sample.e2e_ms() is None


def test_a_reset_mid_stream_is_truncated(ask, raw_server):
    sent = threading.Event()

    def handle(connection, _number):
        connection.sendall(CHUNKED + chunk(token("Half")))
        sent.wait(5)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return "close"

    threading.Timer(0.1, sent.set).start()
    sample = ask(raw_server(handle).url)
    assert (sample.outcome, len(sample.token_ns)) == (Outcome.TRUNCATED, 1)
    assert "reset" in sample.detail.lower()


def hold(*pieces, every_s=0.05, forever=b""):
    def handle(connection, _number):
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(every_s)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if forever:
                connection.sendall(forever)
            time.sleep(every_s)

    return handle


@pytest.mark.parametrize(
    ("outcome", "detail", "pieces", "limits"),
    [
        (Outcome.TIMEOUT, "no token within 0.2 s", [], {"first_token_s": 0.2}),
        (Outcome.TIMEOUT, "no token within 0.2 s", [CHUNKED], {"first_token_s": 0.2}),
        (Outcome.STALLED, "token stall: none for 0.2 s", [CHUNKED + chunk(token())], {"stall_s": 0.2}),
        (Outcome.TIMEOUT, "not done within 0.2 s", [CHUNKED + chunk(token())], {"total_s": 0.2}),
    ],
)
def test_keep_alives_move_no_limit(ask, raw_server, outcome, detail, pieces, limits):
    keep_alive = chunk(b": keep-alive\n\n") if pieces else b""
    server = raw_server(hold(*pieces, forever=keep_alive))
    sample = ask(server.url, limits=Limits(**{"first_token_s": 5, "stall_s": 5, "total_s": 10, **limits}))
    assert (outcome, detail) == (sample.outcome, sample.detail.partition(" after ")[0])
    assert 0.2 <= (sample.done_ns - sample.sent_ns) / 1e9 < 2.0


def test_a_slow_stream_inside_its_limits_is_ok(ask, raw_server):
    pieces = [CHUNKED, *(chunk(token(word)) for word in "abcd"), chunk(STOP + DONE) + b"0\r\n\r\n"]
    server = raw_server(hold(*pieces, every_s=0.15))
    sample = ask(server.url, limits=Limits(first_token_s=3, stall_s=3, total_s=20))
    assert (sample.outcome, len(sample.token_ns)) == (Outcome.OK, 4)
    assert all(gap > 100 for gap in sample.chunk_gaps_ms)


def test_a_body_that_goes_on_after_done_holds_nobody_up(ask, raw_server):
    sample = ask(raw_server(hold(CHUNKED + chunk(WHOLE))).url)
    assert (sample.outcome, sample.e2e_ms() < 900) == (Outcome.OK, True)


def test_connections_are_reused(offer, reply):
    server = reply(ANSWER)
    samples, _ = offer(server.url, requests=12, concurrency=2)
    assert sum(sample.ok for sample in samples) == 12
    assert server.connections == 2


def test_a_connection_that_the_server_closes_is_not_reused(offer, reply):
    server = reply(
        HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(WHOLE), WHOLE), close=True
    )
    samples, _ = offer(server.url, requests=3)
    assert [(sample.outcome, sample.warnings) for sample in samples] == [(Outcome.OK, ())] * 3
    assert server.connections == 3


def test_an_answer_that_nobody_asked_for_is_given_to_nobody(offer, reply):
    server = reply(ANSWER + ANSWER)
    samples, _ = offer(server.url, requests=3)
    assert [sample.outcome for sample in samples] == [Outcome.OK] * 3
    assert server.connections == 3


def test_a_refusal_says_why_and_when_to_come_back(ask, reply):
    data = json_answer(b'{"error":{"message":"queue full"}}', b"429 Too Many", b"Retry-After: 7\r\n")
    sample = ask(reply(data).url)
    assert (sample.http_status, sample.detail) == (429, "HTTP 429: queue full (Retry-After: 7)")


def test_a_key_that_the_server_repeats_is_not_kept(ask, reply):
    server = reply(json_answer(b'{"error":{"message":"bad key sk-secret-1"}}', b"401 Unauthorized"))
    sample = ask(server.url, endpoint={"headers": {"Authorization": "Bearer sk-secret-1"}})
    assert sample.detail == "HTTP 401: bad key ***"
    assert b"Authorization: Bearer sk-secret-1\r\n" in server.requests[0]


def test_an_answer_that_is_not_streamed_says_so(ask, reply):
    body = (
        b'{"choices":[{"message":{"content":"yes"},"finish_reason":"stop"}],"usage":{"completion_tokens":1}}'
    )
    sample = ask(reply(json_answer(body)).url)
    assert (sample.output_tokens, sample.warnings) == (1, ("not streamed",))


def test_half_a_surrogate_pair_does_not_reach_a_file(ask, reply):
    body = rb'{"choices":[{"message":{"content":"\ud800"},"finish_reason":"\ud800"}]}'
    sample = ask(reply(json_answer(body)).url)
    assert (sample.outcome, sample.finish_reason) == (Outcome.ABORTED, "?")
    assert sample.detail.isascii()


def test_a_stream_that_comes_at_once_is_flagged_as_a_burst(ask, reply):
    words = b"".join(token(word) for word in "abcdefgh")
    sample = ask(reply(CHUNKED + chunk(words + STOP + DONE) + b"0\r\n\r\n").url)
    assert (sample.outcome, sample.warnings) == (Outcome.OK, ("burst",))


def test_https_works_and_an_unknown_certificate_is_a_connect_error(ask, tls_server):
    server = tls_server(lambda connection, _number: connection.sendall(ANSWER))
    assert ask(server.url, endpoint={"route": server.route}).outcome == Outcome.OK
    sample = ask(server.url)
    assert sample.outcome == Outcome.CONNECT_ERROR
    assert "certificate verify failed" in sample.detail


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "prefix"),
    [
        ("http://n1:8000", "n1", 8000, "n1:8000", ""),
        ("http://n1", "n1", 80, "n1", ""),
        ("https://gate.example/llm/", "gate.example", 443, "gate.example", "/llm"),
        ("https://gate.example:80", "gate.example", 80, "gate.example:80", ""),
        ("http://[::1]:8000", "::1", 8000, "[::1]:8000", ""),
    ],
)
def test_a_url_says_where_requests_go(url, host, port, authority, prefix):
    server = Server.of(url)
    assert (server.host, server.port, server.authority, server.prefix) == (host, port, authority, prefix)


def test_a_name_that_has_worked_at_one_address_is_never_tried_at_another(offer, raw_server):
    """localhost may be two engines, one for IPv4 and one for IPv6."""

    def handle(connection, number):
        if number == 0:
            server.close_listener()
            connection.sendall(ANSWER.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        return "close"

    server = raw_server(handle)
    port = int(server.url.rpartition(":")[2])
    other = raw_server(lambda connection, _number: connection.sendall(ANSWER), host="::1", port=port)

    def both_addresses(at):
        client = HttpClient(at)
        client._addresses = ["127.0.0.1", "::1"]
        return client

    samples, _ = offer(f"http://localhost:{port}", requests=3, transport=both_addresses)
    assert [sample.outcome for sample in samples] == [Outcome.OK] + [Outcome.CONNECT_ERROR] * 2
    assert other.requests == []


def test_answers_of_one_connection_are_read_wherever_they_are_cut(offer, raw_server):
    """Each after the first begins with a head that is known from the one before."""
    connections = set()

    def handle(connection, number):
        connections.add(connection)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        place = number % len(ANSWER)
        connection.sendall(ANSWER[:place])
        time.sleep(0.001)
        connection.sendall(ANSWER[place:])

    samples, _ = offer(raw_server(handle).url, requests=len(ANSWER))
    (told,) = {(s.outcome, s.text_digest, len(s.token_ns), s.finish_reason, s.warnings) for s in samples}
    assert (Outcome.OK, 1, "stop", ()) == (told[0], *told[2:])
    assert 1 == len(connections)


def test_what_differs_from_the_answer_before_is_read_for_what_it_is(offer, raw_server):
    answers = [
        ANSWER,
        json_answer(b'{"choices":[{"message":{"content":"yes"},"finish_reason":"stop"}]}'),
        ANSWER,
        json_answer(b'{"error":"no"}', b"500 Internal Server Error"),
        CHUNKED + chunk(token()) + b"0\r\n\r\n",
        ANSWER,
    ]
    server = raw_server(lambda connection, number: connection.sendall(answers[number]))
    samples, _ = offer(server.url, requests=len(answers))
    outcomes = [s.outcome for s in sorted(samples, key=lambda s: s.sent_ns)]
    assert [
        Outcome.OK, Outcome.OK, Outcome.OK, Outcome.HTTP_ERROR, Outcome.TRUNCATED, Outcome.OK
    ] == outcomes  # fmt: skip
