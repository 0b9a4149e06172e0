"""The field cases as whole HTTP responses through the code that runs: connection, attempt, reader, row.

A response is cut anywhere and understood whenever: neither changes its row, nor in which read a token came.
"""

import hashlib
import json
import time
from bisect import bisect_left
from pathlib import Path
from time import perf_counter_ns

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackgate.engines.protocols.protocol import protocol_named
from rackgate.loadgen.http.connection import Connection
from rackgate.loadgen.http.memory_limit import MemoryLimit
from rackgate.loadgen.worker.attempt import Attempt, RequestSettings
from rackgate.loadgen.worker.sample_row import sample_row
from rackgate.loadgen.worker.spool import row_lines, sample_of_line
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Limits
from rackgate.nouns.sample import Outcome

pytestmark = pytest.mark.slow

CASES = Path(__file__).parents[2] / "cases"
INPUTS = CASES / "inputs"
KNOWN = json.loads((CASES / "expected.json").read_text())
FAILURES = {
    "aborted_by_engine": Outcome.ABORTED,
    "token stall": Outcome.STALLED,
    "connection lost": Outcome.TRUNCATED,
    "tokens generated but nothing delivered": Outcome.EMPTY,
}
STREAMS = [name for name in KNOWN if name.startswith("SSE-")] + ["MET-01", "MET-02", "MET-05", "MET-16"]


def body_of(file):
    path = INPUTS / file
    if file.endswith(".chunks.json"):
        return b"".join(bytes.fromhex(piece) for piece in json.loads(path.read_text()))
    if file.endswith(".timed.jsonl"):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return b"".join(line["raw"].encode() for line in lines if "raw" in line)
    return path.read_bytes()


def chunked(body, size):
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def response(body, *, kind=b"text/event-stream", framing="chunked", size=64):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n" % kind
    if framing == "chunked":
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body, size)
    if framing == "sized":
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    return head + b"\r\n" + body


def whole_answers():
    """Yield (id, protocol, media type, body, expected) of each case that is one answer."""
    for name in STREAMS:
        files, expected = KNOWN[name]["inputs"], KNOWN[name]["expected"]
        each = [expected] if len(files) == 1 else expected.values()
        for file, wanted in zip(files, each, strict=True):
            protocol = "triton" if name == "SSE-26" else "openai"
            yield file, protocol, b"text/event-stream", body_of(file), wanted
    yield (
        "ENG-04",
        "openai",
        b"application/json",
        (INPUTS / "ENG-04.json").read_bytes(),
        KNOWN["ENG-04"]["expected"],
    )
    for case in json.loads((INPUTS / "ENG-03.json").read_text()):
        if case["status"] != 200:
            continue
        choice = {"message": {"content": case["text"]}, "finish_reason": case["finish_reason"]}
        body = json.dumps({"choices": [choice], "usage": case["usage"]}).encode()
        sane = KNOWN["ENG-03"]["expected"][case["case"]]["sane"]
        wanted = {"ok": sane} if sane else {"ok": sane, "outcome": Outcome.DEGENERATE}
        yield f"ENG-03{case['case']}", "openai", b"application/json", body, wanted


ANSWERS = list(whole_answers())
CUT_SHORT = bytes.fromhex((INPUTS / "ENG-09.http.hex").read_text().strip())


class Wire:
    """The transport below a connection: what is sent goes nowhere."""

    closed = False

    def write(self, data):
        self.sent = data

    def is_closing(self):
        return self.closed

    def abort(self):
        self.closed = True


class Desk:
    """The connection's owner: understands what was put aside when it is told to."""

    def __init__(self):
        self.waiting = None

    def schedule(self, connection):
        connection.queued = True
        self.waiting = connection

    def look(self):
        connection, self.waiting = self.waiting, None
        if connection is not None:
            connection.queued = False
            connection.process_reads()

    def opened(self, connection):
        pass

    closed = released = opened


def carried(pieces, protocol, looks=(), *, lost=False):
    """Return the sample of a response that arrives in these pieces, and the piece in which each token came.

    After piece k what was put aside is understood if `looks[k]`; what is left, at the end.
    """
    desk, ended = Desk(), []
    connection = Connection(desk)
    connection.connection_made(Wire())
    settings = RequestSettings.of(
        Endpoint(entity="e", url="http://h", model="m"),
        protocol_named(protocol),
        Limits(),
        MemoryLimit(),
    )
    attempt = Attempt(settings, "r", perf_counter_ns(), ended.append)
    connection.perform(b"POST", attempt)
    arrivals = []
    for number, piece in enumerate(pieces):
        connection.data_received(piece)
        arrivals.append(perf_counter_ns())
        if number < len(looks) and looks[number]:
            desk.look()
    if lost:
        connection.connection_lost(None)
    desk.look()
    assert [attempt] == ended
    sample = sample_of_line(row_lines([sample_row(attempt, ("l", "t", 0), warmup=False)]))
    return sample, [bisect_left(arrivals, moment) for moment in sample.token_ns]


def facts(sample):
    """Return all of a sample that no moment decides; a burst is a matter of moments."""
    moments = {name for name in sample.__slots__ if name.endswith("_ns")}
    given = {name: getattr(sample, name) for name in sample.__slots__ if name not in moments}
    given["warnings"] = tuple(warning for warning in sample.warnings if warning != "burst")
    there = {name: getattr(sample, name) is not None for name in moments}
    return given | there | {"chunks": len(sample.token_ns)}


def cut(data, places):
    ends = [*sorted({place % len(data) for place in places} - {0}), len(data)]
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def pieces_of(positions, pieces):
    """Return which piece each of these bytes lies in."""
    ends = []
    for piece in pieces:
        ends.append((ends[-1] if ends else 0) + len(piece))
    return [bisect_left(ends, position + 1) for position in positions]


GIVEN = {
    "token_chunks": lambda s: len(s.token_ns),
    "chunks": lambda s: len(s.token_ns),
    "finish_reason": lambda s: s.finish_reason,
    "completion_tokens": lambda s: None if s.token_source == "chunks" else s.output_tokens,
    "prompt_tokens": lambda s: s.prompt_tokens,
    "ok": lambda s: s.ok,
    "outcome": lambda s: s.outcome,
    "ttft_is_null": lambda s: s.ttft_ms() is None,
    "failure": lambda s: s.outcome,
}


def wanted_of(expected):
    wanted = {key: value for key, value in expected.items() if key in GIVEN}
    if "failure" in wanted:
        wanted["failure"] = FAILURES[wanted["failure"]]
    return wanted


def check(sample, expected):
    wanted = wanted_of(expected)
    assert wanted == {key: GIVEN[key](sample) for key in wanted}
    if "text" in expected and "reasoning" in expected:
        said = f"{expected['reasoning']}\0{expected['text']}".encode()
        assert hashlib.sha256(said).hexdigest() == sample.text_digest
    if "warning" in expected:
        assert expected["warning"] in sample.warnings


cuts = st.lists(st.integers(0, 1 << 20), max_size=24)
turns = st.lists(st.booleans(), max_size=24)


@pytest.mark.parametrize("case", [pytest.param(answer[1:], id=answer[0]) for answer in ANSWERS])
@settings(max_examples=40)
@given(cuts, turns, st.sampled_from(["chunked", "sized", "closed"]), st.integers(1, 400))
def test_cuts_change_neither_the_row_nor_when_a_token_came(case, places, looks, framing, size):
    protocol, kind, body, expected = case
    data = response(body, kind=kind, framing=framing, size=size)
    lost = framing == "closed"
    whole, _ = carried([data], protocol, lost=lost)
    bytewise, positions = carried([data[at : at + 1] for at in range(len(data))], protocol, lost=lost)
    pieces = cut(data, places)
    sample, found = carried(pieces, protocol, looks, lost=lost)
    assert facts(whole) == facts(bytewise) == facts(sample)
    assert pieces_of(positions, pieces) == found
    check(sample, expected)


@given(cuts, turns, st.integers(1, len(CUT_SHORT)))
def test_a_connection_that_is_lost_anywhere_is_never_a_success(places, looks, end):
    data = CUT_SHORT[:end]
    sample, _ = carried(cut(data, places), "openai", looks, lost=True)
    assert Outcome.TRUNCATED is sample.outcome
    assert facts(carried([data], "openai", lost=True)[0]) == facts(sample)


@pytest.mark.parametrize("framing", ["chunked", "sized", "closed"])
def test_every_case_has_its_answer_over_a_socket(offer, raw_server, framing):
    """One connection after the other carries the cases, cut by the number of the case."""

    def handle(connection, number):
        _, _, kind, body, _ = ANSWERS[order[number]]
        data = response(body, kind=kind, framing=framing, size=50 + number)
        for piece in cut(data, range(7 * number, len(data), 97 + number)):
            connection.sendall(piece)
        return "close" if framing == "closed" else ""

    for protocol in ("openai", "triton"):
        order = [number for number, answer in enumerate(ANSWERS) if answer[1] == protocol]
        samples, _ = offer(raw_server(handle).url, requests=len(order), endpoint={"protocol": protocol})
        for number, sample in zip(order, samples, strict=True):
            check(sample, ANSWERS[number][4])


@pytest.mark.parametrize("file", ["MET-01.timed.jsonl", "MET-02a.timed.jsonl", "MET-05.timed.jsonl"])
def test_a_timed_case_has_its_times_over_a_socket(ask, raw_server, file):
    """Ten times as fast as it was: a busy machine is late, and never early."""
    name = file.split(".")[0].rstrip("ab")
    expected = KNOWN[name]["expected"]
    expected = expected["a"] if file.startswith("MET-02a") else expected
    lines = [json.loads(line) for line in (INPUTS / file).read_text(encoding="utf-8").splitlines()]

    def handle(connection, _number):
        begin_ns = perf_counter_ns()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for line in lines:
            if "raw" in line:
                left_s = line["t_ms"] / 1e4 - (perf_counter_ns() - begin_ns) / 1e9
                time.sleep(max(0.0, left_s))
                connection.sendall(line["raw"].encode())
        return "close"

    sample = ask(raw_server(handle).url)
    assert expected["ttft_ms"] / 10 <= sample.ttft_ms() < expected["ttft_ms"] / 10 + 200
    assert expected["completion_tokens"] == sample.output_tokens
    if "time_to_first_answer_ms" in expected:
        assert expected["time_to_first_answer_ms"] / 10 <= sample.time_to_first_answer_ms()
    least = expected["tpot_ms"] / 10 * (sample.output_tokens - 1) - 150
    assert sample.tpot_ms * (sample.output_tokens - 1) >= least
