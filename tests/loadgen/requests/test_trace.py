"""Public traces: read exactly, and refused with line and reason before the first request."""

from dataclasses import replace
from pathlib import Path

import pytest

from rackgate.loadgen.requests.trace import TraceError, read_trace, trace_of
from rackgate.loadgen.running import start_load
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Arrival, Load

TRACES = Path(__file__).parents[2] / "traces"
LOAD = Load(
    name="t",
    prompt_tokens=8,
    output_tokens=2,
    arrival=Arrival.TRACE,
    concurrency=8,
    warmup_requests=0,
    trace=str(TRACES / "mooncake.jsonl"),
)


def rows(name):
    trace = read_trace(TRACES / name)
    return trace.form, [(one.offset_s, one.prompt_tokens, one.output_tokens) for one in trace.requests]


@pytest.mark.parametrize(
    ("name", "form", "expected"),
    [
        ("mooncake.jsonl", "mooncake", [(0.0, 700, 5), (0.04, 900, 3), (0.09, 12, 4)]),
        ("burstgpt.csv", "burstgpt", [(5.0, 47, 6), (5.1, 18, 4)]),
        ("sharegpt.json", "sharegpt", [(None, 9, 6), (None, 4, 4)]),
    ],
)
def test_a_trace_is_read_as_written(name, form, expected):
    assert (form, expected) == rows(name)


@pytest.mark.parametrize(("name", "gaps"), [("azure.csv", [0.05, 0.1]), ("azure-2024.csv", [0.1])])
def test_both_spellings_of_azures_times_are_understood(name, gaps):
    form, found = rows(name)
    assert form == "azure"
    assert gaps == pytest.approx([moment - found[0][0] for moment, _, _ in found[1:]], abs=1e-5)


def test_conversations_that_begin_with_no_question_are_counted():
    assert read_trace(TRACES / "sharegpt.json").left_out == 1


def test_requests_that_failed_when_burstgpt_recorded_them_are_left_out_and_counted(tmp_path):
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
    rows = [
        "5,ChatGPT,472,18,490,Conversation log",
        "45,ChatGPT,1087,0,1087,Conversation log",
        "45,G,2,3,5,A",
    ]
    (tmp_path / "b.csv").write_text("\n".join([head, *rows]))
    trace = read_trace(tmp_path / "b.csv")
    assert [(472, 18), (2, 3)] == [(one.prompt_tokens, one.output_tokens) for one in trace.requests]
    assert (1, "1 of 3 left out: failed requests") == (trace.left_out, trace.left_out_reason)
    assert "" == read_trace(TRACES / "burstgpt.csv").left_out_reason


GOOD = '{"timestamp": 5, "input_length": 7, "output_length": 5, "hash_ids": [1]}'


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", f"{GOOD}\n{{broken\n", ":2: Expecting property name"),
        ("a.jsonl", f"{GOOD}\n[]\n", ":1: of no known"),
        ("a.jsonl", f"{GOOD}\n\n7\n", ":3: a JSON object is due, not int"),
        (
            "a.jsonl",
            f'{GOOD}\n{{"timestamp": 4, "input_length": 7, "output_length": 5}}',
            ":2: time goes backwards",
        ),
        ("a.jsonl", f'{GOOD}\n{{"timestamp": 9, "input_length": 7}}', ":2: no 'output_length'"),
        (
            "a.jsonl",
            f'{GOOD}\n{{"timestamp": 9, "input_length": 0, "output_length": 5}}',
            ":2: prompt_tokens of 0",
        ),
        (
            "a.jsonl",
            f'{GOOD}\n{{"timestamp": 9, "input_length": 7.5, "output_length": 5}}',
            ":2: 7.5 is no whole",
        ),
        (
            "a.jsonl",
            '{"timestamp": 9, "input_length": 700, "output_length": 5, "hash_ids": [1]}',
            ":1: 1 hash_ids",
        ),
        ("a.jsonl", '{"timestamp": NaN, "input_length": 7, "output_length": 5}', ":1: nan is no time"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", ":2: Invalid isoformat"),
        (
            "a.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,1\n",
            ":2: a value is missing",
        ),
        ("a.csv", "Timestamp,Model,Request tokens,Response tokens\n1,x,4,-1\n", ":2: output_tokens of -1"),
        ("a.csv", "when,what\n1,2\n", ":1: of no known trace format"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n", ": no request in it"),
        ("a.json", '[{"id": 1}]', ": conversation 1: no list 'conversations'"),
    ],
)
def test_a_bad_line_is_refused_with_its_number_and_the_reason(tmp_path, name, text, words):
    path = tmp_path / name
    path.write_text(text)
    if "[]" in text:
        words = ":2: a JSON object is due, not list"
    with pytest.raises(TraceError) as refusal:
        read_trace(path)
    assert str(refusal.value).startswith(f"{path}{words}")


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / "absent.jsonl")
    with pytest.raises(TraceError, match="no trace format 'x'"):
        read_trace(TRACES / "azure.csv", "x")


def test_a_trace_without_times_cannot_give_arrivals():
    with pytest.raises(TraceError, match="sharegpt has no times"):
        trace_of(replace(LOAD, trace=str(TRACES / "sharegpt.json")))


def test_a_request_longer_than_the_context_is_refused():
    with pytest.raises(TraceError, match="request 2: 903 tokens exceed the model's context of 800"):
        trace_of(replace(LOAD, context_tokens=800))


def test_nothing_is_sent_for_a_bad_trace(tmp_path, reply):
    bad = tmp_path / "bad.jsonl"
    bad.write_text(f"{GOOD}\noops\n")
    server = reply(b"")
    with pytest.raises(ValueError, match=r"bad\.jsonl:2:"):
        start_load(
            replace(LOAD, trace=str(bad)), [Endpoint(entity="e", url=server.url, model="m")],
            label="t", samples_path=tmp_path / "x.parquet", seed=1,
        )  # fmt: skip
    assert server.connections == 0


@pytest.mark.parametrize("name", ["mooncake.jsonl", "azure.csv", "burstgpt.csv"])
def test_a_trace_is_offered_at_its_times_and_lengths(reference, offer, name):
    expected = rows(name)[1]
    samples, result = offer(reference, arrival=Arrival.TRACE, trace=str(TRACES / name), concurrency=8,
                            requests=len(expected), looks=(), warmup_requests=0)  # fmt: skip
    samples.sort(key=lambda sample: sample.scheduled_ns)
    assert [tokens for _, _, tokens in expected] == [sample.output_tokens for sample in samples]
    offsets = [(sample.scheduled_ns - samples[0].scheduled_ns) / 1e9 for sample in samples]
    assert [moment - expected[0][0] for moment, _, _ in expected] == pytest.approx(offsets, abs=1e-5)
    assert result["outcomes"] == {"ok": len(expected)}


def test_a_trace_of_texts_is_offered_by_another_arrival(reference, offer):
    samples, _ = offer(reference, trace=str(TRACES / "sharegpt.json"), requests=2, looks=(), concurrency=1)
    assert [6, 4] == [sample.output_tokens for sample in samples]


def test_a_trace_is_not_repeated(tmp_path):
    with pytest.raises(ValueError, match=r"4 requests are planned, .* holds 3"):
        start_load(LOAD, [Endpoint(entity="e", url="http://x", model="m")], label="t", requests=4,
                   samples_path=tmp_path / "x.parquet", seed=1)  # fmt: skip
