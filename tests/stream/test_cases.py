"""The field cases about one stream, with the expected values of tests/cases/expected.json."""

import json
from pathlib import Path

import pytest

from rackgate.engines.protocols.answer import Ending
from rackgate.engines.protocols.openai import ChatStream, read_body
from rackgate.engines.protocols.protocol import protocol_named
from rackgate.engines.protocols.sanity import degenerate
from rackgate.loadgen.worker.attempt import next_deadline
from rackgate.nouns.load import Limits, Origin
from rackgate.nouns.sample import FAILED, Outcome, Sample

CASES = Path(__file__).parent.parent / "cases"
EXPECTED = {
    name: case["expected"] for name, case in json.loads((CASES / "expected.json").read_text()).items()
}
INPUTS = CASES / "inputs"
MS = 1_000_000


def reads_of(name):
    path = INPUTS / name
    if name.endswith(".chunks.json"):
        return [(0, bytes.fromhex(piece)) for piece in json.loads(path.read_text())]
    if name.endswith(".timed.jsonl"):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [(line["t_ms"] * MS, line["raw"].encode()) for line in lines if "raw" in line]
    return [(0, path.read_bytes())]


def answer_of(name):
    reader = protocol_named("triton" if name.startswith("SSE-26") else "openai").reader()
    t_ns = 0
    for t_ns, data in reads_of(name):
        reader.feed(t_ns, data)
    return reader.close(t_ns, Ending.COMPLETE)


def sample_of(answer, **changes):
    tokens = answer.token_ns
    fields = {
        "request_id": "r0",
        "engine": "e",
        "load": "l",
        "label": "t",
        "outcome": answer.outcome,
        "scheduled_ns": 0,
        "sent_ns": 0,
        "first_token_ns": tokens[0] if tokens else None,
        "first_answer_ns": answer.first_answer_ns,
        "last_token_ns": tokens[-1] if tokens else None,
        "done_ns": answer.done_ns,
        "token_ns": tokens,
        "output_tokens": answer.output_tokens,
        "token_source": answer.token_source,
    }
    return Sample(**{**fields, **changes})


FAILURES = {
    "aborted_by_engine": Outcome.ABORTED,
    "token stall": Outcome.STALLED,
    "connection lost": Outcome.TRUNCATED,
    "tokens generated but nothing delivered": Outcome.EMPTY,
}

GIVEN = {
    "text": lambda a, _s: a.text,
    "partial_text": lambda a, _s: a.text,
    "reasoning": lambda a, _s: a.reasoning,
    "tool_calls": lambda a, _s: [{"name": c.name, "arguments": c.arguments} for c in a.tool_calls],
    "token_chunks": lambda a, _s: len(a.token_ns),
    "chunks": lambda a, _s: len(a.token_ns),
    "finish_reason": lambda a, _s: a.finish_reason,
    "done_seen": lambda a, _s: a.done_seen,
    "complete": lambda a, _s: a.complete,
    "completion_tokens": lambda a, _s: a.completion_tokens,
    "prompt_tokens": lambda a, _s: a.prompt_tokens,
    "server_predicted_n": lambda a, _s: a.server_predicted_n,
    "server_times_s": lambda a, _s: a.server_times_s,
    "comment_frames": lambda a, _s: a.comment_frames,
    "error_type": lambda a, _s: a.error_type,
    "error_code": lambda a, _s: a.error_code,
    "ttft_chunk_index": lambda a, _s: a.first_token_chunk,
    "tokens_per_chunk": lambda a, _s: list(a.chunk_tokens),
    "ok": lambda _a, s: s.ok,
    "contains_U+FFFD": lambda a, _s: "\ufffd" in a.text,
    "ttft_is_null": lambda _a, s: s.ttft_ms() is None,
    "ttft_ms": lambda _a, s: s.ttft_ms(Origin.SENT),
    "time_to_first_answer_ms": lambda _a, s: s.time_to_first_answer_ms(Origin.SENT),
    "tpot_ms": lambda _a, s: None if s.tpot_ms is None else round(s.tpot_ms, 3),
    "tpot_excluding_first_chunk_tokens_ms": lambda a, _s: a.tpot_excluding_first_chunk_ms,
    "chunk_gaps": lambda _a, s: list(s.chunk_gaps_ms),
    "chunk_gaps_ms": lambda _a, s: list(s.chunk_gaps_ms),
}
SPECIAL = {"must_not_be", "note", "error_message_contains", "warning", "failure", "counts_in"}


def check(expected, name):
    answer = answer_of(name)
    sample = sample_of(answer)
    known = {key: value for key, value in expected.items() if key not in SPECIAL}
    assert known == {key: GIVEN[key](answer, sample) for key in known}
    if "error_message_contains" in expected:
        assert expected["error_message_contains"] in answer.error_message
    if "warning" in expected:
        assert expected["warning"] in answer.warnings
    if "failure" in expected:
        assert FAILURES[expected["failure"]] == answer.outcome
    for key, wrong in expected.get("must_not_be", {}).items():
        if key in GIVEN:
            assert GIVEN[key](answer, sample) not in wrong


def streams():
    inputs = json.loads((CASES / "expected.json").read_text())
    names = [name for name in inputs if name.startswith("SSE-")] + ["MET-01", "MET-02", "MET-05", "MET-16"]
    for name in names:
        files = inputs[name]["inputs"]
        if len(files) == 1:
            yield pytest.param(EXPECTED[name], files[0], id=name)
            continue
        for file, expected in zip(files, EXPECTED[name].values(), strict=True):
            yield pytest.param(expected, file, id=file)


@pytest.mark.parametrize(("expected", "file"), list(streams()))
def test_a_stream_is_read_as_the_case_says(expected, file):
    check(expected, file)


def test_an_error_inside_a_200_counts_in_the_error_rate_and_nowhere_else():
    counts = EXPECTED["SSE-14"]["counts_in"]
    sample = sample_of(answer_of("SSE-14.sse"))
    assert counts["error_rate"] == (sample.outcome in FAILED)
    assert counts["latency_percentiles"] == (sample.e2e_ms() is not None)
    assert counts["throughput_tokens"] == sample.ok


def test_an_answer_that_ends_inside_reasoning_is_ok_and_says_that_the_answer_is_empty():
    answer = answer_of("SSE-03.sse")
    assert answer.outcome == Outcome.OK
    assert answer.warnings == ("answer text empty",)


def test_tpot_needs_two_tokens_and_no_token_is_no_success():
    expected = EXPECTED["MET-04"]
    samples = []
    for case in json.loads((INPUTS / "MET-04.json").read_text()):
        stream = ChatStream()
        for moment in dict.fromkeys(
            m for m in (case["first_token_ms"], case["last_token_ms"]) if m is not None
        ):
            stream.feed(moment * MS, b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
        usage = {"completion_tokens": case["completion_tokens"]}
        stream.feed(
            500 * MS, f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode()
        )
        samples.append(sample_of(stream.close(500 * MS, Ending.COMPLETE)))
    assert expected["per_request_tpot_ms"] == [sample.tpot_ms for sample in samples]
    known = [sample.tpot_ms for sample in samples if sample.tpot_ms is not None]
    assert (expected["tpot_samples"], expected["mean_tpot_ms"]) == (len(known), sum(known) / len(known))
    assert [sample.outcome for sample in samples] == [Outcome.OK, Outcome.OK, Outcome.OK, Outcome.EMPTY]


def test_latency_of_an_open_load_counts_from_the_schedule():
    expected = EXPECTED["MET-12"]
    requests = json.loads((INPUTS / "MET-12.json").read_text())["requests"]
    answer = answer_of("SSE-25.sse")
    samples = [
        sample_of(
            answer,
            scheduled_ns=request["scheduled_ms"] * MS,
            sent_ns=request["sent_ms"] * MS,
            done_ns=request["end_ms"] * MS,
        )
        for request in requests
    ]
    assert expected["service_latency_ms"] == [sample.e2e_ms(Origin.SENT) for sample in samples]
    assert expected["response_latency_from_schedule_ms"] == [
        sample.e2e_ms(Origin.SCHEDULED) for sample in samples
    ]
    assert expected["max_schedule_lag_ms"] == max(sample.schedule_lag_ms for sample in samples)


def test_a_step_of_the_wall_clock_changes_no_duration():
    case = json.loads((INPUTS / "MET-13.json").read_text())
    sent, first = (round(case[key]["monotonic_s"] * 1e9) for key in ("send", "first_token"))
    sample = sample_of(answer_of("SSE-25.sse"), scheduled_ns=sent, sent_ns=sent, first_token_ns=first)
    assert EXPECTED["MET-13"]["ttft_ms"] == sample.ttft_ms()


def test_tpot_leaves_the_first_token_out():
    case = json.loads((INPUTS / "MET-19.json").read_text())
    tokens = (case["ttft_ms"] * MS, case["last_token_ms"] * MS)
    sample = sample_of(answer_of("SSE-25.sse"), token_ns=tokens, output_tokens=case["completion_tokens"])
    assert EXPECTED["MET-19"]["tpot_excluding_first_ms"] == sample.tpot_ms
    including = EXPECTED["MET-19"]["latency_per_output_token_including_first_ms"]
    assert including == round(case["last_token_ms"] / case["completion_tokens"], 3)
    assert including != sample.tpot_ms


def test_keep_alives_do_not_hide_a_token_stall():
    expected = EXPECTED["ENG-02"]
    limits = Limits(stall_s=30.0, first_token_s=30.0, total_s=600.0)
    stream = ChatStream()
    ended = None
    for t_ns, data in reads_of("ENG-02.timed.jsonl"):
        moment, ending, _ = next_deadline(limits, 0, stream.last_token_ns)
        if moment <= t_ns:
            ended = moment
            answer = stream.close(moment, ending)
            break
        stream.feed(t_ns, data)
    assert ended is not None
    assert ended <= expected["detected_at_ms_max"] * MS
    assert FAILURES[expected["failure"]] == answer.outcome
    assert expected["tokens"] == len(answer.token_ns)
    assert expected["ok"] == (answer.outcome is Outcome.OK)


def test_degenerate_output_is_not_sane_and_a_short_repeat_is():
    expected = EXPECTED["ENG-03"]
    for case in json.loads((INPUTS / "ENG-03.json").read_text()):
        wanted = expected[case["case"]]
        if case["status"] != 200:  # an engine that cannot answer is no degenerate text but an HTTP error
            assert not wanted["sane"]
            continue
        choice = {"message": {"content": case["text"]}, "finish_reason": case["finish_reason"]}
        answer = read_body(json.dumps({"choices": [choice], "usage": case["usage"]}).encode())
        assert wanted.get("why", "") == degenerate(case["text"]) == answer.detail
        assert (Outcome.OK if wanted["sane"] else Outcome.DEGENERATE) == answer.outcome


def test_tokens_that_were_counted_but_not_delivered_are_no_success():
    expected = EXPECTED["ENG-04"]
    answer = read_body((INPUTS / "ENG-04.json").read_bytes())
    assert FAILURES[expected["failure"]] == answer.outcome
    assert expected["failure"] == answer.detail
    assert expected["completion_tokens"] == answer.completion_tokens
