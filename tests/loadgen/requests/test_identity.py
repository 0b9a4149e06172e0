"""Who answered and under which names a request is found: header, fingerprint, configuration, trace ids."""

import json
import re

import numpy as np
import pytest

from rackgate.loadgen.results.sample_file import read_samples, write_samples
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.nouns.load import Origin
from rackgate.nouns.sample import traceparent_of

pytestmark = pytest.mark.slow

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n%bTransfer-Encoding: chunked\r\n\r\n"
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
NAMES = {"pod-7": "n1/gpu0", "fp_a": "n1/gpu1"}


def answer(header=b"", fingerprint=None, *, preface=True, words=("one", "two", "three"), late=False):
    data = HEAD % header
    for number, word in enumerate(words):
        frame = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        if preface and not (late and not number):
            frame["system_fingerprint"] = fingerprint
        frame["choices"] = [{"index": 0, "delta": {"content": word}, "finish_reason": None}]
        if not preface:
            frame["system_fingerprint"] = fingerprint
        event = b"data: %b\n\n" % json.dumps(frame).encode()
        data += b"%x\r\n%b\r\n" % (len(event), event)
    stop = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    return data + b"%x\r\n%b\r\n" % (len(stop), stop) + END


@pytest.mark.parametrize(
    ("said", "endpoint", "entity"),
    [
        ({"header": b"X-Served-By: pod-7\r\n"}, {}, "n1/gpu0"),
        ({"header": b"X-Served-By: pod-9\r\n"}, {}, "pod-9"),
        ({"header": b"X-Served-By: pod-7\r\n", "fingerprint": "fp_a"}, {"engine": "e"}, "n1/gpu0"),
        ({"fingerprint": "fp_a"}, {}, "n1/gpu1"),
        ({"fingerprint": "fp_a", "preface": False}, {}, "n1/gpu1"),
        ({"fingerprint": "fp_a", "late": True}, {}, "n1/gpu1"),
        ({"fingerprint": "fp_b"}, {}, None),
        ({"fingerprint": "fp_b"}, {"engine": "e"}, "e"),
        ({"fingerprint": "fp_a"}, {"engine": "e"}, "n1/gpu1"),
        ({}, {"engine": "e"}, "e"),
        ({}, {}, None),
    ],
)
def test_who_answered_is_said_by_header_fingerprint_or_configuration(offer, reply, said, endpoint, entity):
    known = {"served_by_header": "x-served-by", "served_by": NAMES, **endpoint}
    samples, _ = offer(reply(answer(**said)).url, requests=6, endpoint=known)
    assert [entity] * 6 == [sample.served_by for sample in samples]
    assert [3] * 6 == [len(sample.token_ns) for sample in samples]


def test_engines_with_fingerprints_of_their_own_are_told_apart_on_the_short_way_too(offer, raw_server):
    def handle(connection, number):
        connection.sendall(answer(fingerprint=("fp_a", "fp_b")[number % 2], preface=number % 3 > 0))

    known = {"served_by": {"fp_a": "n1/gpu0", "fp_b": "n1/gpu1"}}
    samples, _ = offer(raw_server(handle).url, requests=12, endpoint=known)
    assert ["n1/gpu0", "n1/gpu1"] * 6 == [sample.served_by for sample in samples]


def test_an_answer_in_one_body_says_who_gave_it(ask, reply):
    body = b'{"system_fingerprint":"fp_a","choices":[{"message":{"content":"y"},"finish_reason":"stop"}]}'
    data = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    assert "n1/gpu1" == ask(reply(data % (len(body), body)).url, endpoint={"served_by": NAMES}).served_by


def test_a_request_that_was_not_answered_was_served_by_nobody(ask, raw_server):
    url = raw_server(lambda _connection, _number: "close").url
    assert ask(url, endpoint={"engine": "e"}).served_by is None


def test_a_request_is_found_by_the_trace_context_that_it_was_sent_with(offer, reply, tmp_path):
    server = reply(answer())
    samples, _ = offer(server.url, requests=5)
    sent = [re.search(rb"traceparent: (\S+)\r\n", request)[1].decode() for request in server.requests]
    ids = [re.search(rb"X-Request-Id: (\S+)\r\n", request)[1].decode() for request in server.requests]
    assert [(sample.request_id, sample.traceparent) for sample in samples] == list(
        zip(ids, sent, strict=True)
    )
    for traceparent in sent:
        version, trace, span, flags = traceparent.split("-")
        assert ("00", "01") == (version, flags)
        assert re.fullmatch("[0-9a-f]{32}", trace)
        assert re.fullmatch("[0-9a-f]{16}", span)
        assert set(trace) != {"0"} != set(span)
    assert 5 == len({traceparent.split("-")[1] for traceparent in sent})
    write_samples(SampleTable.from_samples(samples, Origin.SENT), tmp_path / "x")
    table = read_samples(tmp_path / "x")
    assert sent == list(table.column("traceparent"))
    assert sent[2:] == list(table.where(np.arange(5) >= 2).column("traceparent"))


def test_the_trace_context_is_the_sha_256_of_the_request_id():
    expected = "00-cb8471aa7722318613c752232b8beeff-928296aaf821c0c1-01"
    assert expected == traceparent_of("rg-1")
