"""The faults of which every known load generator takes at least one for a success."""

import json
import time

import pytest

from rackgate.loadgen.http import connection, memory_limit
from rackgate.nouns.load import Limits, Load
from rackgate.nouns.sample import Outcome
from rackgate.simulator.rack import start_rack
from rackgate.simulator.scenarios import Scenario
from rackgate.simulator.settings import RackSettings

pytestmark = pytest.mark.slow

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(*deltas, **more):
    frames = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}], **more} for delta in deltas]
    body = b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)
    return b"%x\r\n%b\r\n" % (len(body), body)


TOKENS = chunk(*({"content": f" word{number}"} for number in range(10)))
END = b"0\r\n\r\n"
MOVED = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://other/v1\r\nContent-Length: 0\r\n\r\n"


MATRIX = {
    "error inside a 200": ({"error_share": 1.0}, Outcome.STREAM_ERROR, "EngineCore encountered an issue", 10),
    "connection cut": ({"truncate_share": 1.0}, Outcome.TRUNCATED, "connection closed by the peer", 10),
    "clean end, no terminal signal": (
        {"unended_share": 1.0}, Outcome.TRUNCATED, "the body ended without a terminal signal", 10,
    ),
    "nothing at all": ({"empty_output": True}, Outcome.EMPTY, "no token", 0),
    "usage without text": (
        {"empty_output": True, "empty_counted": True}, Outcome.EMPTY, "generated but nothing delivered", 0,
    ),
}  # fmt: skip


@pytest.fixture
def sick(ask):
    """Ask a simulated engine with these faults for 20 tokens, by the protocol given."""

    def asked(knobs, **endpoint):
        scenario = Scenario(name="fault", summary="", cards={"*": knobs})
        with start_rack(RackSettings(nodes=1, cards=1), scenario=scenario) as rack:
            engine = rack.engines[0]
            return ask(engine.url, endpoint={"model": engine.spec.model, **endpoint}, output_tokens=20)

    return asked


@pytest.mark.parametrize("protocol", ["openai", "openai_completions"])
@pytest.mark.parametrize("fault", MATRIX)
def test_a_dying_engine_is_not_a_success(sick, fault, protocol):
    knobs, outcome, words, chunks = MATRIX[fault]
    sample = sick(knobs, protocol=protocol)
    assert (outcome, chunks) == (sample.outcome, len(sample.token_ns))
    assert words in sample.detail
    assert (200, None) == (sample.http_status, sample.e2e_ms())
    assert (chunks == 0) is (sample.first_token_ns is None)


def test_usage_without_text_keeps_the_servers_count_and_is_no_success(sick):
    sample = sick({"empty_output": True, "empty_counted": True})
    assert (20, "usage", Outcome.EMPTY) == (sample.output_tokens, sample.token_source, sample.outcome)


@pytest.mark.parametrize("early", [False, True])
def test_a_role_at_once_is_no_first_token(sick, early):
    sample = sick({"role_at_once": early, "first_token_delay_ms": 200.0})
    assert Outcome.OK is sample.outcome
    assert sample.ttft_ms() > 190
    since_first_byte_ms = (sample.first_token_ns - sample.first_byte_ns) / 1e6
    assert (since_first_byte_ms > 150) is early


def test_an_answer_in_one_body_is_an_error_of_http_where_the_engine_dies(sick):
    sample = sick({"error_share": 1.0}, protocol="openai_whole")
    assert (Outcome.HTTP_ERROR, 500) == (sample.outcome, sample.http_status)


def test_an_answer_that_says_something_else_is_wrong(offer, reply):
    server = reply(HEAD + TOKENS + b"e\r\ndata: [DONE]\n\n\r\n" + END)
    right, _ = offer(server.url, requests=2, expect=r"word\d word9$")
    assert [Outcome.OK] * 2 == [sample.outcome for sample in right]
    wrong, result = offer(server.url, requests=2, expect="42")
    assert [(Outcome.WRONG, None)] * 2 == [(sample.outcome, sample.e2e_ms()) for sample in wrong]
    assert wrong[0].detail.startswith("the answer does not match '42' after 10 chunks: ' word0 word1")
    assert {"wrong": 2} == result["outcomes"]


def test_an_answer_that_is_cut_is_not_judged_by_what_it_says(ask, reply):
    assert Outcome.TRUNCATED is ask(reply(HEAD + TOKENS + END).url, expect="42").outcome


def test_an_expectation_that_is_no_pattern_is_refused():
    load = Load(name="l", prompt_tokens=8, output_tokens=8, looks=(1,), expect="(")
    assert ("expect: '(' is no regular expression: missing ), unterminated subpattern at position 0",) == (
        load.problems
    )


def test_a_redirect_is_told_and_not_followed(ask, reply):
    server = reply(
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://other/v1\r\nContent-Length: 0\r\n\r\n"
    )
    sample = ask(server.url)
    assert Outcome.HTTP_ERROR is sample.outcome
    assert "HTTP 307: redirects to http://other/v1, which is not followed" == sample.detail
    assert 1 == len(server.requests)


def endless(raw_server, piece, head=HEAD, every_s=0.0):
    def handle(connection, _number):
        connection.sendall(head)
        while True:
            connection.sendall(piece)
            time.sleep(every_s)

    return raw_server(handle).url


@pytest.mark.parametrize(
    ("kind", "detail"),
    [
        (b"200 OK|text/event-stream", "a response of more than 1.062 MiB"),
        (b"200 OK|application/json", "a response of more than 1.062 MiB"),
        (b"500 Broken|application/json", "HTTP 500: a response of more than 1.062 MiB"),
        (b"429 Busy|text/plain", "HTTP 429: a response of more than 1.062 MiB"),
    ],
)
def test_a_server_that_never_stops_is_cut_off_by_what_was_asked_for(ask, raw_server, kind, detail):
    """Four tokens: 1 MiB and 16 KiB for each."""
    status, media = kind.split(b"|")
    head = HEAD.replace(b"200 OK", status).replace(b"text/event-stream", media)
    sample = ask(endless(raw_server, TOKENS, head), limits=Limits(total_s=60.0))
    assert Outcome.MALFORMED is sample.outcome
    assert sample.detail.startswith(detail)


def test_servers_that_never_stop_have_a_bound_together(offer, raw_server, monkeypatch):
    monkeypatch.setattr(memory_limit, "MAX_TOTAL_BYTES", 1 << 19)
    url = endless(raw_server, TOKENS * 8, every_s=0.005)
    samples, result = offer(url, requests=8, concurrency=8, limits=Limits(total_s=60.0))
    assert {"malformed": 8} == result["outcomes"]
    said = "more than 0.5 MiB in the responses in flight, the most in this one"
    assert [True] * 8 == [sample.detail.startswith(said) for sample in samples]


def test_honest_answers_have_room_together_however_long_they_are(offer, reply, monkeypatch):
    monkeypatch.setattr(memory_limit, "MAX_TOTAL_BYTES", 1 << 10)
    data = HEAD + TOKENS * 20 + b"e\r\ndata: [DONE]\n\n\r\n" + END
    samples, _ = offer(reply(data).url, requests=16, concurrency=8, output_tokens=200)
    assert [(Outcome.OK, 200)] * 16 == [(sample.outcome, len(sample.token_ns)) for sample in samples]


def test_a_head_that_never_ends_is_cut_off(ask, raw_server, monkeypatch):
    monkeypatch.setattr(connection, "MAX_HEAD_BYTES", 1 << 18)
    url = endless(raw_server, b"X-More: and more\r\n", b"HTTP/1.1 200 OK\r\n")
    sample = ask(url, limits=Limits(first_token_s=20.0))
    assert Outcome.MALFORMED is sample.outcome
    assert "a head of more than 256 KiB" in sample.detail
