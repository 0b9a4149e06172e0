"""Every protocol asks in its own words and is read to the same answer."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackgate.engines.openai import ChatStream
from rackgate.engines.protocol import PROTOCOLS, ChatRequest, Ending, protocol_named
from rackgate.sample import Outcome

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
frames = st.fixed_dictionaries(
    {"content": texts},
    optional={"reasoning_content": texts, "role": st.just("assistant"), "tool_calls": st.just([])},
)
finishes = st.sampled_from([None, None, None, None, "stop"])
COUNTED = {"usage": {"prompt_tokens": 3, "completion_tokens": 4}}
usages = st.sampled_from([{}, {}, {}, COUNTED, {"usage": None}])


@settings(max_examples=200, deadline=None)
@given(parts=st.lists(st.tuples(frames, finishes, usages), max_size=12), ascii_only=st.booleans())
def test_the_short_way_through_a_stream_reads_what_the_long_way_reads(parts, ascii_only):
    """One event per read may be read by comparison with the one before it; two halves never are."""
    events = [
        b"data: "
        + json.dumps(
            {"choices": [{"delta": delta, "finish_reason": finish}], **usage}, ensure_ascii=ascii_only
        ).encode()
        + b"\n\n"
        for delta, finish, usage in parts
    ]
    short, long = ChatStream(), ChatStream()
    for number, event in enumerate(events):
        short.feed(number, event)
        long.feed(number, event[:9])
        long.feed(number, event[9:])
    assert long.close(99, Ending.COMPLETE) == short.close(99, Ending.COMPLETE)
