"""The SSE parser: bytes in any pieces, the same events out."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.engines.protocols import sse
from rackgate.engines.protocols.answer import Ending
from rackgate.engines.protocols.openai import ChatStream
from rackgate.engines.protocols.sse import EventTooLong, SseParser

INPUTS = Path(__file__).parent.parent / "cases" / "inputs"
STREAMS = sorted(INPUTS.glob("SSE-*.sse"))


def events_of(*pieces):
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close()


def cut(body, places):
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:stop] for start, stop in pairwise(edges)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_end_at_lf_cr_and_crlf(end):
    assert events_of(end.join([b"data: a", b"data:b", b"", b"event: x", b"data: c", b"", b""])) == [
        ("", b"a\nb"),
        ("x", b"c"),
    ]


def test_a_pair_that_straddles_two_reads_is_one_line_end():
    assert events_of(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [("", b"a\nb")]


def test_an_event_is_given_out_with_the_read_that_ends_it():
    parser = SseParser()
    assert parser.feed(b"data: a\r\n") == []
    assert parser.feed(b"\r") == [("", b"a")]
    assert parser.feed(b"\n") == []


def test_a_byte_order_mark_is_skipped_once():
    assert events_of(b"\xef", b"\xbb\xbfdata: a\n\ndata: b\n\n") == [("", b"a"), ("", b"b")]


def test_only_one_space_is_taken_off():
    assert events_of(b"data:  a\n\n") == [("", b" a")]


def test_a_name_ends_with_its_event():
    assert events_of(b"event: x\n\ndata: a\n\n") == [("", b"a")]


def test_comments_are_counted_and_unknown_lines_too():
    parser = SseParser()
    parser.feed(b": ping\n:\n<html>\nid: 3\nretry: 5\n\n")
    assert (parser.comments, parser.ignored) == (2, 1)


def test_the_last_event_needs_no_blank_line():
    assert events_of(b"data: [DONE]") == [("", b"[DONE]")]


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    parser = SseParser()
    for _ in range(10):
        assert parser.feed(b"x" * 100) == []
    with pytest.raises(EventTooLong):
        parser.feed(b"x")


@given(
    st.lists(st.sampled_from([b"data: a", b"data:", b"event: e", b": c", b"", b"data", b"x"]), max_size=12),
    st.lists(st.sampled_from([b"\n", b"\r", b"\r\n"]), min_size=12, max_size=12),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_cuts_change_no_event(lines, ends, places):
    body = b"".join(line + end for line, end in zip(lines, ends, strict=False))
    assert events_of(body) == events_of(*cut(body, places))


@given(st.sampled_from(STREAMS), st.lists(st.integers(0, 10_000), max_size=20))
def test_cuts_change_no_answer(path, places):
    body = path.read_bytes()
    whole, pieces = ChatStream(), ChatStream()
    whole.feed(0, body)
    for piece in cut(body, places):
        pieces.feed(0, piece)
    assert whole.close(0, Ending.COMPLETE) == pieces.close(0, Ending.COMPLETE)


@given(st.sampled_from(STREAMS), st.integers(0, 10_000), st.sampled_from([Ending.LOST, Ending.COMPLETE]))
def test_a_stream_that_is_cut_off_before_its_terminal_signal_is_never_ok(path, place, ending):
    body = path.read_bytes()
    body = body[: place % (len(body) + 1)]
    stream = ChatStream()
    stream.feed(0, body)
    answer = stream.close(0, ending)
    signals = b"[DONE]" in body or any(
        frame["choices"][0].get("finish_reason") for frame in frames_of(body) if frame.get("choices")
    )
    assert signals or answer.outcome != "ok"


def frames_of(body):
    for line in body.split(b"\n"):
        try:
            yield json.loads(line.removeprefix(b"data:"))
        except ValueError:
            continue
