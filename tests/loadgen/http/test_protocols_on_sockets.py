"""Every protocol through the load generator, on a real socket: what is asked, and what the answer becomes."""

import json
import re
import sys

import pytest

from rackgate.engines.protocols.openai import OpenAi
from rackgate.engines.protocols.protocol import JSON, PROTOCOLS, STREAM, Dialect, protocol_named
from rackgate.nouns.sample import Outcome

pytestmark = pytest.mark.slow

USAGE = {"prompt_tokens": 9, "completion_tokens": 2}
CHAT = [{"choices": [{"delta": {"content": word}, "finish_reason": None}]} for word in ("a ", "b")]
TEXT = [{"choices": [{"text": word, "finish_reason": None}]} for word in ("a ", "b")]
STOP = [{"choices": [{"delta": {}, "text": "", "finish_reason": "stop"}], "usage": USAGE}]
TENSOR = {"outputs": [{"name": "text_output", "datatype": "BYTES", "shape": [1], "data": ["a b"]}]}


def events(frames, end=b"data: [DONE]\n\n"):
    return b"".join(b"data: %b\n\n" % json.dumps(frame).encode() for frame in frames) + end


def whole(choice):
    return json.dumps({"choices": [{**choice, "finish_reason": "stop"}], "usage": USAGE}).encode()


ANSWERS = {
    "kserve": (JSON, json.dumps(TENSOR).encode(), 1, "chunks"),
    "openai": (STREAM, events(CHAT + STOP), 2, "usage"),
    "openai_completions": (STREAM, events(TEXT + STOP), 2, "usage"),
    "openai_completions_whole": (JSON, whole({"text": "a b"}), 2, "usage"),
    "openai_embeddings": (
        JSON,
        b'{"data":[{"embedding":[0.5,-1]}],"usage":{"prompt_tokens":9}}',
        1,
        "chunks",
    ),
    "openai_plain": (STREAM, events(CHAT + STOP), 2, "usage"),
    "openai_whole": (JSON, whole({"message": {"content": "a b"}}), 2, "usage"),
    "triton": (STREAM, events([{"text_output": "a "}, {"text_output": "b"}], b""), 2, "chunks"),
}


def respond(kind, body):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (kind.encode(), len(body)) + body


def test_every_protocol_that_ships_is_tried_here():
    assert sorted(PROTOCOLS) == sorted(ANSWERS)


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_load_in_every_protocol_asks_for_what_it_reads(offer, reply, name):
    kind, body, tokens, source = ANSWERS[name]
    server = reply(respond(kind, body))
    samples, result = offer(server.url, requests=3, endpoint={"protocol": name})
    assert [(Outcome.OK, tokens, source, ())] * 3 == [
        (one.outcome, one.output_tokens, one.token_source, one.warnings) for one in samples
    ]
    assert {"ok": 3} == result["outcomes"]
    head, _, sent = server.requests[0].partition(b"\r\n\r\n")
    assert f"POST {protocol_named(name).path('m')} HTTP/1.1".encode() == head.split(b"\r\n")[0]
    assert [kind] == [found.decode() for found in re.findall(rb"\r\nAccept: (\S+)", head)]
    assert json.loads(sent).get("stream", False) is (kind == STREAM)


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_an_error_in_place_of_an_answer_is_never_a_success(ask, reply, name):
    sample = ask(reply(respond(ANSWERS[name][0], b"data: {}\n\n")).url, endpoint={"protocol": name})
    assert sample.outcome in (Outcome.MALFORMED, Outcome.TRUNCATED, Outcome.EMPTY)
    refused = b"HTTP/1.1 404 Not Found\r\nContent-Length: 19\r\n\r\n" + b'{"error":"no such"}'
    sample = ask(reply(refused).url, endpoint={"protocol": name})
    assert (Outcome.HTTP_ERROR, "HTTP 404: no such") == (sample.outcome, sample.detail)


class Elsewhere(OpenAi):
    """A protocol of somebody else's."""

    def path(self, model):
        return f"/chat/{model}"

    @property
    def dialect(self):
        return Dialect(accept="text/event-stream, application/x-ours")


ELSEWHERE = Elsewhere()
NOTHING = object()


def test_a_protocol_that_does_not_ship_is_one_module(ask, reply):
    server = reply(respond(STREAM, ANSWERS["openai"][1]))
    sample = ask(server.url, endpoint={"protocol": f"{__name__}:ELSEWHERE"})
    assert Outcome.OK is sample.outcome
    # Discovery, which another test may try at the same time, asks every port of this machine for its models.
    (asked,) = [request for request in server.requests if request.startswith(b"POST ")]
    assert asked.startswith(b"POST /chat/m HTTP/1.1\r\n")
    assert b"Accept: text/event-stream, application/x-ours\r\n" in asked


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("opnai", "unknown protocol 'opnai'; known: kserve, openai,"),
        (f"{__name__}:NOTHING", "is no protocol: it has no path, body, reader, dialect"),
        (f"{__name__}:ABSENT", "cannot be had"),
        ("no_such_module:X", "cannot be had: No module named 'no_such_module'"),
    ],
)
def test_what_is_no_protocol_is_refused(name, words):
    assert __name__ in sys.modules
    with pytest.raises(ValueError, match="protocol") as raised:
        protocol_named(name)
    assert words in str(raised.value)
