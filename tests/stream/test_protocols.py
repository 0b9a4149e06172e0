"""Every protocol asks in its own words and is read to the same answer."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackgate.engines.protocols.answer import Ending
from rackgate.engines.protocols.body_readers import StreamReader
from rackgate.engines.protocols.learned_events import Learned
from rackgate.engines.protocols.openai import ChatStream, interpret
from rackgate.engines.protocols.protocol import PROTOCOLS, ChatRequest, protocol_named
from rackgate.nouns.sample import Outcome

ASK = ChatRequest(model="a/b", prompt="now", max_tokens=7, history=(("before", "said"),))


def answer(name, body, *, streamed=False):
    reader = protocol_named(name).reader(streamed=streamed)
    reader.feed(5, body if isinstance(body, bytes) else json.dumps(body).encode())
    return reader.close(9, Ending.COMPLETE)


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_every_protocol_carries_what_was_said_before(name):
    body = protocol_named(name).body(ASK).decode()
    json.loads(body)
    assert [True, True, True] == [word in body for word in ("before", "said", "now")]


def test_each_protocol_has_its_path():
    assert {
        "kserve": "/v2/models/a%2Fb/infer",
        "openai": "/v1/chat/completions",
        "openai_completions": "/v1/completions",
        "openai_completions_whole": "/v1/completions",
        "openai_embeddings": "/v1/embeddings",
        "openai_plain": "/v1/chat/completions",
        "openai_whole": "/v1/chat/completions",
        "triton": "/v2/models/a%2Fb/generate_stream",
    } == {name: protocol_named(name).path("a/b") for name in PROTOCOLS}


def test_completions_are_read_as_a_stream_of_text():
    frame = {"choices": [{"text": " word", "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}
    found = answer(
        "openai_completions", f"data: {json.dumps(frame)}\n\ndata: [DONE]\n\n".encode(), streamed=True
    )
    assert (Outcome.OK, " word", 1) == (found.outcome, found.text, found.output_tokens)


def test_a_whole_answer_is_asked_for_and_read_without_a_warning():
    asked = json.loads(protocol_named("openai_whole").body(ASK))
    assert (False, False) == (asked["stream"], "stream_options" in asked)
    found = answer("openai_whole", {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]})
    assert (Outcome.OK, "hello", ()) == (found.outcome, found.text, found.warnings)


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"data": [{"embedding": [0.1, -2]}], "usage": {"prompt_tokens": 3}}, Outcome.OK),
        ({"data": [{"embedding": []}]}, Outcome.MALFORMED),
        ({"data": []}, Outcome.MALFORMED),
        (b'{"data": [{"embedding": [NaN]}]}', Outcome.MALFORMED),
        ([], Outcome.MALFORMED),
        ({"error": {"message": "no such model"}}, Outcome.STREAM_ERROR),
    ],
)
def test_an_embedding_is_one_vector_of_finite_numbers(body, outcome):
    assert outcome is answer("openai_embeddings", body).outcome


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"outputs": [{"name": "text_output", "datatype": "BYTES", "data": ["hello"]}]}, Outcome.OK),
        ({"outputs": [{"name": "text_output", "datatype": "BYTES", "data": [""]}]}, Outcome.EMPTY),
        ({"outputs": [{"name": "score", "datatype": "FP32", "data": [1.0]}]}, Outcome.EMPTY),
        ({"model_name": "m"}, Outcome.MALFORMED),
        ({"error": "unexpected shape"}, Outcome.STREAM_ERROR),
    ],
)
def test_an_inference_is_its_text_tensor(body, outcome):
    assert outcome is answer("kserve", body).outcome


texts = st.text(alphabet=st.sampled_from('ab "\\\n\r\t{}:,é中\u2028\x00'), max_size=6)
deltas = st.fixed_dictionaries(
    {"content": texts},
    optional={"reasoning_content": texts, "role": st.just("assistant"), "tool_calls": st.just([])},
)
COUNTED = {"prompt_tokens": 3, "completion_tokens": 4}
prefaces = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["chatcmpl-1", "chatcmpl-2", 'a"b', "é"]),
        "object": st.sampled_from(["chat.completion.chunk", "error"]),
        "created": st.integers(0, 3),
        "model": st.just("m"),
    },
)
frames = st.one_of(
    st.builds(
        lambda delta, finish: {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]},
        deltas,
        st.sampled_from([None, None, None, None, "stop", "abort"]),
    ),
    st.sampled_from(
        [
            {"choices": []},
            {"choices": [], "usage": COUNTED},
            {"choices": [{"delta": {}}], "usage": COUNTED},
            {"choices": [], "usage": {"prompt_tokens": 5}},
            {"choices": [], "timings": {"prompt_n": 9}},
            {"choices": [], "timings": {"prompt_n": 9, "predicted_n": 2}, "usage": {"completion_tokens": 1}},
            {"choices": [], "error": "no"},
            {"choices": [{"delta": {"content": [{"type": "text", "text": "a"}, "b"]}}], "note": "ab"},
        ]
    ),
)
usages = st.sampled_from([{}, {}, {}, {"usage": COUNTED}, {"usage": None}])
payloads = st.one_of(
    st.builds(
        lambda preface, frame, usage, ascii_only, narrow: json.dumps(
            {**preface, **frame, **usage},
            ensure_ascii=ascii_only,
            separators=(",", ":") if narrow else (", ", ": "),
        ).encode(),
        prefaces, frames, usages, st.booleans(), st.booleans(),
    ),
    st.sampled_from([b"[DONE]", b"{broken", b'{"choices":[{"delta":{"content":"\xff"}}]}', b"7"]),
)  # fmt: skip


@settings(max_examples=300)
@given(
    st.lists(payloads, max_size=12),
    st.sampled_from([b"\n\n", b"\n\n", b"\r\n\r\n"]),
    st.lists(st.integers(0, 400), max_size=8)
    | st.lists(st.integers(0, 12).map(lambda place: -place), max_size=3),
)
def test_the_short_way_through_a_stream_reads_what_the_long_way_reads(events, end, places):
    """An event may be read by what was learned from others, in this stream or in any before it.

    The stream is cut at bytes, or (below 0) between events.
    """
    whole = [b"data: " + event + end for event in events]
    body = b"".join(whole)
    edges = sorted({0, len(body), *(at if at > 0 else len(b"".join(whole[:-at])) for at in places)})
    reads = [(number, body[begin:stop]) for number, (begin, stop) in enumerate(pairwise(edges))]
    short, long = ChatStream(), StreamReader(interpret)
    short.take(reads)
    for t_ns, data in reads:
        long.feed(t_ns, data)
    assert long.close(99, Ending.COMPLETE) == short.close(99, Ending.COMPLETE)


def stream_of(words, identity):
    preface = {"id": identity, "object": "chat.completion.chunk", "created": 1, "model": "m"}
    frames = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
    frames += [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in words]
    frames += [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": COUNTED},
    ]
    return [b"data: " + json.dumps({**preface, **frame}).encode() + b"\n\n" for frame in frames] + [
        b"data: [DONE]\n\n"
    ]


def test_what_one_answer_taught_holds_for_answers_with_another_id():
    asked = []

    def counting(reading, name, data):
        asked.append(data)
        interpret(reading, name, data)

    learned = Learned(counting)
    StreamReader(counting, learned=learned).take(list(enumerate(stream_of(["a", "b"], "x"))))
    asked.clear()
    again = StreamReader(counting, learned=learned)
    again.take(list(enumerate(stream_of(["other", "words", "here"], "y"))))
    answer = again.close(9, Ending.COMPLETE)
    assert ([], "otherwordshere", (1, 2, 3)) == (asked, answer.text, answer.token_ns)
    assert ("stop", True, 4, Outcome.OK) == (
        answer.finish_reason, answer.done_seen, answer.completion_tokens, answer.outcome
    )  # fmt: skip


def test_events_that_come_together_are_known_when_they_come_again():
    asked = []

    def counting(reading, name, data):
        asked.append(data)
        interpret(reading, name, data)

    learned = Learned(counting)
    for identity in "xyz":
        asked.clear()
        reader = StreamReader(counting, learned=learned)
        reader.take([(2, b"".join(stream_of(["a", "b"], identity)))])
        answer = reader.close(9, Ending.COMPLETE)
        assert ("ab", (2, 2), "stop", True, 4, 1) == (
            answer.text, answer.token_ns, answer.finish_reason, answer.done_seen, answer.completion_tokens,
            answer.first_token_chunk,
        )  # fmt: skip
    assert [] == asked


def test_what_is_learned_is_bounded():
    learned = Learned(interpret)
    for number in range(6000):
        StreamReader(interpret, learned=learned).feed(
            0, b'data: {"n": %d, "choices": [{"delta": {"content": "x%d"}}]}\n\n' % (number, number)
        )
    assert all(len(templates) <= 8 for templates in learned.templates)
    assert all(len(effects) <= 1024 for effects in learned.effects)
