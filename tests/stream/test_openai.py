"""What a chat completion amounts to: outcomes, warnings, and the request that asks for it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.engines.protocols.answer import Ending
from rackgate.engines.protocols.openai import OPENAI, OPENAI_PLAIN, ChatStream, read_body
from rackgate.engines.protocols.protocol import ChatRequest, protocol_named
from rackgate.engines.protocols.triton import TRITON
from rackgate.nouns.sample import Outcome

DONE = "data: [DONE]\n\n"


def frame(delta=None, finish=None, **more):
    return f"data: {json.dumps({'choices': [{'delta': delta or {}, 'finish_reason': finish}], **more})}\n\n"


def answer_to(*frames, ending=Ending.COMPLETE, detail=""):
    stream = ChatStream()
    for t_ns, text in enumerate(frames):
        stream.feed(t_ns, text.encode())
    return stream.close(len(frames), ending, detail)


SAID = frame({"content": "yes"})
STOP = frame(finish="stop")
CALL = frame({"function_call": {"name": "f", "arguments": "{}"}})


@pytest.mark.parametrize(
    ("outcome", "frames", "ending"),
    [
        (Outcome.OK, [SAID, STOP, DONE], Ending.COMPLETE),
        (Outcome.OK, [SAID, frame(finish="length")], Ending.COMPLETE),
        (Outcome.OK, [SAID, frame(finish="content_filter"), DONE], Ending.COMPLETE),
        (Outcome.OK, [SAID, STOP], Ending.LOST),
        (Outcome.OK, [SAID, STOP], Ending.STALLED),
        (Outcome.OK, [CALL, frame(finish="function_call")], Ending.COMPLETE),
        (Outcome.TRUNCATED, [SAID], Ending.COMPLETE),
        (Outcome.TRUNCATED, [SAID], Ending.LOST),
        (Outcome.TRUNCATED, [], Ending.COMPLETE),
        (Outcome.TRUNCATED, [SAID, 'data: {"choices":[{"del'], Ending.LOST),
        (Outcome.TRUNCATED, [SAID, frame(finish="")], Ending.COMPLETE),
        (Outcome.TIMEOUT, [], Ending.TIMEOUT),
        (Outcome.STALLED, [SAID], Ending.STALLED),
        (Outcome.CANCELLED, [SAID], Ending.CANCELLED),
        (Outcome.CONNECT_ERROR, [], Ending.UNCONNECTED),
        (Outcome.ABORTED, [SAID, frame(finish="abort"), DONE], Ending.COMPLETE),
        (Outcome.ABORTED, [SAID, frame(finish="error"), DONE], Ending.COMPLETE),
        (Outcome.ABORTED, [SAID, frame(finish="something new"), DONE], Ending.COMPLETE),
        (Outcome.EMPTY, [STOP, DONE], Ending.COMPLETE),
        (Outcome.EMPTY, [DONE], Ending.COMPLETE),
        (Outcome.EMPTY, [frame({"content": ""}), STOP, DONE], Ending.COMPLETE),
        (Outcome.DEGENERATE, [frame({"content": "!" * 40}), STOP, DONE], Ending.COMPLETE),
        (Outcome.DEGENERATE, [frame({"reasoning": "!" * 40}), STOP, DONE], Ending.COMPLETE),
        (Outcome.STREAM_ERROR, [SAID, 'data: {"error":"gone"}\n\n', DONE], Ending.COMPLETE),
        (Outcome.STREAM_ERROR, [SAID, STOP, DONE, 'data: {"error":{"code":"x"}}\n\n'], Ending.COMPLETE),
        (Outcome.STREAM_ERROR, ['data: {"object":"error","message":"gone","code":400}\n\n'], Ending.COMPLETE),
        (Outcome.STREAM_ERROR, ["event: error\ndata: no JSON\n\n"], Ending.COMPLETE),
        (Outcome.STREAM_ERROR, ['event: error\ndata: {"message":"gone"}\n\n'], Ending.COMPLETE),
        (Outcome.STREAM_ERROR, ['data: {"error":"gone"}\n\n'], Ending.LOST),
        (Outcome.MALFORMED, [SAID, "data: {no JSON}\n\n", DONE], Ending.COMPLETE),
        (Outcome.MALFORMED, ["data: [1]\n\n", DONE], Ending.COMPLETE),
        (Outcome.MALFORMED, ['data: {"choices":7}\n\n', DONE], Ending.COMPLETE),
        (Outcome.MALFORMED, ['data: {"choices":[{"delta":"text"}]}\n\n', DONE], Ending.COMPLETE),
        (Outcome.MALFORMED, [f"data: {'[' * 200_000}\n\n"], Ending.COMPLETE),
        (Outcome.MALFORMED, ["<html><body>It works!</body></html>\n"], Ending.COMPLETE),
        (Outcome.MALFORMED, [SAID], Ending.MALFORMED),
    ],
)  # fmt: skip
def test_each_stream_has_one_outcome(outcome, frames, ending):
    assert outcome == answer_to(*frames, ending=ending).outcome


def test_done_is_the_terminal_signal_not_the_end_of_the_body():
    assert answer_to(SAID, STOP, DONE, ": bye\n\n").done_ns == 2


def test_without_done_it_is_the_end_of_the_body():
    assert answer_to(SAID, STOP, ": bye\n\n").done_ns == 3


def test_tokens_after_done_are_not_counted():
    answer = answer_to(SAID, STOP, DONE, SAID)
    assert (answer.text, len(answer.token_ns), answer.warnings) == ("yes", 1, ("tokens after [DONE]",))


def test_without_usage_tokens_are_chunks_and_the_source_says_so():
    answer = answer_to(SAID, SAID, STOP, DONE)
    assert (answer.completion_tokens, answer.output_tokens, answer.token_source) == (None, 2, "chunks")


def test_usage_is_preferred_to_timings_wherever_it_stands():
    usage = frame(usage={"completion_tokens": 7})
    answer = answer_to(SAID, usage, frame(finish="stop", timings={"predicted_n": 9}), DONE)
    assert (answer.completion_tokens, answer.token_source, answer.server_predicted_n) == (7, "usage", 9)


def test_content_may_be_a_list_of_parts():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "4"},
    ]
    answer = answer_to(frame({"content": parts}), STOP, DONE)
    assert (answer.text, answer.reasoning) == ("4", "hm")


def test_pieces_of_parallel_calls_go_to_their_index():
    calls = [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}],
        [{"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}],
        [{"index": 1, "function": {"arguments": "{1}"}}],
        [{"id": "a", "function": {"arguments": "{0}"}}],
    ]
    answer = answer_to(*(frame({"tool_calls": call}) for call in calls), frame(finish="tool_calls"), DONE)
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [("f", "{0}"), ("g", "{1}")]


def test_surrogates_that_were_split_do_not_break_the_reading():
    answer = answer_to(frame({"content": "\ud83d"}), frame({"content": "\ude00"}), STOP, DONE)
    assert answer.outcome == Outcome.OK


def test_a_body_without_choices_is_malformed():
    assert read_body(b'{"ok": true}').outcome == Outcome.MALFORMED
    assert read_body(b"\xff\xfe").outcome == Outcome.MALFORMED


def test_a_body_with_an_error_says_it():
    answer = read_body(b'{"error": {"message": "no", "type": "t", "code": 5}}')
    assert (
        answer.outcome, answer.error_message, answer.error_type, answer.error_code,
    ) == (Outcome.STREAM_ERROR, "no", "t", 5)  # fmt: skip


REQUEST = ChatRequest(model="m", prompt="Hi", max_tokens=8)


def test_a_request_asks_for_usage_exact_length_and_temperature_0():
    assert json.loads(OPENAI.body(REQUEST)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 8,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }


def test_the_plain_protocol_asks_for_nothing_that_is_not_openai_s():
    assert "ignore_eos" not in json.loads(OPENAI_PLAIN.body(REQUEST))


def test_triton_names_the_model_in_the_path():
    assert TRITON.path("a/b") == "/v2/models/a%2Fb/generate_stream"
    assert json.loads(TRITON.body(REQUEST))["text_input"] == "Hi"


def test_an_unknown_protocol_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="known: kserve, openai, openai_completions"):
        protocol_named("grpc")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "content",
                    "text",
                    "tool_calls",
                    "function",
                    "name",
                    "id",
                    "index",
                    "arguments",
                    "usage",
                    "timings",
                    "prompt_tokens",
                    "completion_tokens",
                    "predicted_n",
                    "x_groq",
                    "error",
                    "message",
                    "code",
                    "type",
                    "finish_reason",
                    "reasoning",
                    "thinking",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, JSON, st.sampled_from(list(Ending)))
def test_no_json_whatever_breaks_the_reading(first, second, ending):
    frames = [json.dumps(first), json.dumps({"choices": [{"delta": second}], "usage": first}), "[DONE]"]
    body = "".join(f"data: {text}\n\n" for text in frames).encode()
    for name in ("openai", "triton"):
        reader = protocol_named(name).reader()
        reader.feed(0, body)
        assert reader.close(0, ending).outcome in set(Outcome)
    for text in frames:
        assert read_body(text.encode()).outcome in set(Outcome)
