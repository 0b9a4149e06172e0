"""A cache of answers is found out; a prefix cache is told and is no fault."""

import json
import socket
import threading
import time

import pytest

from rackgate.cli import main

pytestmark = pytest.mark.slow

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def frame(text):
    body = (
        b"data: "
        + json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": None}]}).encode()
        + b"\n\n"
    )
    return b"%x\r\n%b\r\n" % (len(body), body)


END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def engine(raw_server, *, caches):
    """An engine that takes 4 ms per token, unless it has a prompt's answer already and `caches` it."""
    known, lock = set(), threading.Lock()
    server = None

    def handle(connection, number):
        if server.requests[number].startswith(b"GET"):
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return ""
        body = server.requests[number].partition(b"\r\n\r\n")[2]
        with lock:
            fast = caches and body in known
            known.add(body)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(HEAD)
        for token in range(8):
            time.sleep(0.0005 if fast else 0.004)
            connection.sendall(frame(f" w{token}"))
        connection.sendall(END)
        return ""

    server = raw_server(handle)
    return server.url


@pytest.mark.parametrize("caches", [True, False])
def test_a_cache_of_answers_is_found_out(raw_server, capsys, caches):
    url = engine(raw_server, caches=caches)
    shape = ["--requests", "8", "--concurrency", "1", "--output-tokens", "8"]
    bounds = ["--slo-e2e-ms", "9000", "--no-selfcheck"]
    status = main(["load", url, "--model", "m", *shape, *bounds, "--json", "--audit"])
    said = json.loads(capsys.readouterr().out)
    audit = said["caches"]
    assert (caches, None) == (audit["answers_cached"], audit["prefix_hit_share"])
    ((what, bound),) = said["bounds"].items()
    assert ("e2e_p99 <= 9000 ms", 1) == (what, status)
    assert "UNKNOWN" == bound["verdict"]  # 8 requests cannot show a P99
    assert caches == ("answers come from a cache" in bound["detail"])


def test_cached_answers_are_no_success_even_without_a_bound(raw_server, capsys):
    shape = [
        "--model",
        "m",
        "--requests",
        "4",
        "--concurrency",
        "1",
        "--output-tokens",
        "8",
        "--no-selfcheck",
    ]
    for caches, expected in ((True, 1), (False, 0)):
        assert expected == main(["load", engine(raw_server, caches=caches), *shape, "--audit"])
        assert caches == ("ANSWERS ARE CACHED" in capsys.readouterr().out)


def test_a_buffered_stream_says_nothing_about_answers(reply, capsys):
    url = reply(HEAD + b"".join(frame(f" w{token}") for token in range(8)) + END).url
    main(
        [
            "load",
            url,
            "--model",
            "m",
            "--requests",
            "4",
            "--output-tokens",
            "8",
            "--audit",
            "--json",
            "--no-selfcheck",
        ]
    )
    audit = json.loads(capsys.readouterr().out)["caches"]
    assert (None, "a hop buffers the streams") == (audit["answers_cached"], audit["detail"])
