"""Heads and bodies of responses: cut anywhere, the same outcome, and what httptools reads too."""

from itertools import pairwise

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.loadgen.http.body import BodyError, ChunkedBody, FixedLengthBody
from rackgate.loadgen.http.head import Framing, HeadError, check_head, parse_head

pytestmark = pytest.mark.slow

LINE = b"HTTP/1.1 200 OK\r\n"


def cut(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:stop] for start, stop in pairwise(edges)]


@pytest.mark.parametrize(
    ("headers", "framing", "length", "keep_alive"),
    [
        (b"Transfer-Encoding: chunked\r\n", Framing.CHUNKED, 0, True),
        (b"transfer-encoding: gzip, Chunked\r\n", Framing.CHUNKED, 0, True),
        (b"Transfer-Encoding: chunked\r\nConnection: close\r\n", Framing.CHUNKED, 0, False),
        (b"Content-Length: 7\r\n", Framing.SIZED, 7, True),
        (b"Content-Length: 0\r\n", Framing.SIZED, 0, True),
        (b"", Framing.CLOSED, 0, False),
        (b"Transfer-Encoding: gzip\r\n", Framing.CLOSED, 0, False),
    ],
)
def test_a_head_says_how_its_body_ends(headers, framing, length, keep_alive):
    head = parse_head(LINE + headers + b"\r\n")
    assert (200, framing, length, keep_alive) == (head.status, head.framing, head.length, head.keep_alive)


def test_a_status_without_a_body_has_none_whatever_its_headers_say():
    head = parse_head(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n")
    assert (Framing.SIZED, 0) == (head.framing, head.length)


def test_of_a_header_that_comes_twice_the_first_one_stands():
    head = parse_head(LINE + b"X-Served-By: a\r\nx-served-by: b\r\n\r\n")
    assert b"a" == head.headers[b"x-served-by"]


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\nA: b\r\n\r\n",
        LINE + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n",
        LINE + b"Content-Length: x\r\n\r\n",
        LINE + b"A b\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
)
def test_what_is_no_head_is_refused(data):
    with pytest.raises(HeadError):
        parse_head(data)


def test_what_can_be_no_head_is_known_before_it_ends():
    check_head(LINE + b"Content-Le")
    with pytest.raises(HeadError):
        check_head(b"SSH-2.0-OpenSSH\r\n")


class Oracle:
    """What httptools makes of a chunked response."""

    def __init__(self):
        self.body, self.ended, self.broken = b"", False, False
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(LINE + b"Transfer-Encoding: chunked\r\n\r\n")

    def on_body(self, data):
        self.body += data

    def on_message_complete(self):
        self.ended = True

    def feed(self, data):
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.broken = True


def read(pieces):
    body, taken = ChunkedBody(), b""
    for number, piece in enumerate(pieces):
        try:
            taken += b"".join(data for _, data in body.take([(number, piece)]))
        except BodyError:
            return taken, body.ended, True
        if body.ended:
            break
    return taken, body.ended, False


def chunk(data, extension=b"", *, upper=False):
    size = b"%X" % len(data) if upper else b"%x" % len(data)
    return size + extension + b"\r\n" + data + b"\r\n"


chunks = st.builds(
    lambda data, extension, upper: chunk(data, extension, upper=upper),
    st.binary(min_size=1, max_size=40)
    | st.sampled_from([b"\r\n", b"0\r\n\r\n", b"data: x\n\n", b"y" * 5000]),
    st.sampled_from([b"", b"", b"", b";a=b"]),
    st.booleans(),
)
ends = st.sampled_from([b"0\r\n\r\n", b"0\r\nX-A: b\r\n\r\n", b"000\r\n\r\n", b""])
cuts = st.lists(st.integers(0, 10_000), max_size=12)


@given(st.lists(chunks, max_size=6), ends, cuts)
def test_a_chunked_body_cut_anywhere_is_read_as_httptools_reads_it(parts, end, places):
    data = b"".join(parts) + end
    oracle = Oracle()
    oracle.feed(data)
    assert not oracle.broken
    assert (oracle.body, oracle.ended, False) == read([data]) == read(cut(data, places))
    assert (oracle.body, oracle.ended, False) == read([data[at : at + 1] for at in range(len(data))])


@given(st.lists(chunks, min_size=1, max_size=4), ends, st.integers(0, 10_000), st.binary(max_size=3), cuts)
def test_a_damaged_chunked_body_is_never_taken_for_a_whole_one(parts, end, place, noise, places):
    data = b"".join(parts) + end
    place %= len(data)
    data = data[:place] + noise + data[place + 1 :]
    oracle = Oracle()
    oracle.feed(data)
    taken, ended, broken = read([data])
    if not oracle.ended or oracle.broken:
        assert not ended or broken or read([data])[0] == oracle.body
    if not broken:
        assert (taken, ended) == read(cut(data, places))[:2]


@pytest.mark.parametrize("size", [1, 2, 9, 10, 15, 16, 20, 21, 22, 160, 255])
def test_two_reads_of_chunks_of_one_size_may_meet_anywhere(size):
    """Also inside a size, where what follows a chunk lies as far off as the size says."""
    body = bytes(range(65, 91)) * 30
    data = b"".join(chunk(body[at : at + size]) for at in range(0, len(body), size)) + b"0\r\n\r\n"
    for place in range(1, len(data)):
        assert (body, True, False) == read([data[:place], data[place:]])


def test_each_piece_keeps_its_arrival():
    reads = [(1, chunk(b"a")), (2, b"1\r"), (3, b"\nb"), (4, b"\r\n1\r\nc\r\n0\r\n"), (5, b"\r\n")]
    body = ChunkedBody()
    assert [(1, b"a"), (3, b"b"), (4, b"c")] == body.take(reads)
    assert (True, False) == (body.ended, body.excess)


@pytest.mark.parametrize(
    "data", [b"zz\r\n", b"\x00\x01", b"-1\r\n", b"0x1\r\na\r\n", b"1\r\nab\r\n", b"1_0\r\n", b"+1\r\na\r\n"]
)
def test_what_is_no_chunk_is_refused_at_once(data):
    with pytest.raises(BodyError):
        ChunkedBody().take([(0, data)])


def test_bytes_behind_the_end_are_seen():
    for body, data in ((ChunkedBody(), b"0\r\n\r\nHTTP"), (FixedLengthBody(2), b"abc")):
        body.take([(0, data)])
        assert (True, True) == (body.ended, body.excess)
