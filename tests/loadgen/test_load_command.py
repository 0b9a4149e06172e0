"""`rackgate load`: one load to any endpoint, in words and as JSON."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from rackgate.cli import main
from rackgate.loadgen.progress import StreamProgress, progress_text, show_progress
from rackgate.loadgen.running import start_load
from rackgate.loadgen.worker.live_state import LiveState
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Arrival, Load, Phase
from rackgate.nouns.sample import Outcome, Sample

pytestmark = pytest.mark.slow

FEW = ["--model", "m", "--requests", "24", "--output-tokens", "4", "--warmup", "1", "--no-selfcheck"]


END = b"0\r\n\r\n"


def engine(raw_server, *, context=None):
    """An engine that answers every prompt with one token, at once."""
    frames = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer += b"%x\r\n%b\r\n%b" % (len(frames), frames, END)
    models = json.dumps({"data": [{"id": "m", "max_model_len": context}]}).encode()
    listed = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(models)
    absent = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

    def handle(connection, number):
        request = server.requests[number]
        get = listed + models if request.startswith(b"GET /v1/models ") else absent
        connection.sendall(get if request.startswith(b"GET") else answer)
        return ""

    server = raw_server(handle)
    return server


def prompts(requests):
    """Return what the chat requests among some ask."""
    bodies = (request.partition(b"\r\n\r\n")[2] for request in requests if request.startswith(b"POST"))
    return [json.loads(body)["messages"][0]["content"] for body in bodies]


def command(capsys, *arguments):
    status = main(["load", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_five_numbers_and_the_instruments_error_are_told(reference, capsys):
    status, out, _ = command(capsys, reference, *FEW, "--concurrency", "4")
    assert status == 0
    for words in ("24 ok", "ttft_ms p99", "one-sided 95%", "error_rate", "the instrument: sent", "exact"):
        assert words in out
    assert "power_w                     UNKNOWN" in out


def test_json_holds_the_same(reference, capsys, tmp_path):
    kept = tmp_path / "kept.parquet"
    status, out, _ = command(
        capsys,
        reference + "/v1",
        *FEW,
        "--rate",
        "200",
        "--json",
        "--slo-e2e-ms",
        "9000",
        "--samples",
        str(kept),
    )
    said = json.loads(out)
    assert (1, True, "scheduled") == (status, said["counters"]["reconciles"], said["origin"])
    assert {"ok": 24} == said["counters"]["outcomes"]
    assert ["UNKNOWN"] == [one["verdict"] for one in said["bounds"].values()]  # 24 cannot show a P99
    assert kept.exists()


def test_a_bound_that_is_broken_fails(reference, capsys):
    status, out, _ = command(capsys, reference, *FEW, "--slo-e2e-ms", "0.001")
    assert status == 1
    assert "FAIL  e2e_p99 <= 0.001 ms" in out


def test_the_load_generators_own_error_is_measured_with_as_many_streams(reference, capsys):
    shape = ["--requests", "60", "--concurrency", "60", "--output-tokens", "2", "--seed", "7"]
    _, out, _ = command(capsys, reference, "--model", "m", *shape, "--json")
    said = json.loads(out)["instrument"]
    assert 0 < said["error_p99_ms"] < 1000
    count, _, at_once = said["error_detail"].partition(" requests to a reference server, ")
    assert int(count) >= 300
    assert int(at_once.split()[0]) >= 40


def test_the_accepted_lateness_follows_the_bound(reference, capsys):
    for bound, limit in (("200", 4.0), ("5", 1.0), ("5000", 10.0)):
        _, out, _ = command(capsys, reference, *FEW, "--json", "--slo-ttft-ms", bound)
        assert limit == json.loads(out)["instrument"]["limit_ms"]


def test_no_call_repeats_the_prompts_of_another_unless_its_seed_is_given(raw_server, capsys):
    server = engine(raw_server)

    def asked(*more):
        before = len(server.requests)
        _, out, _ = command(capsys, server.url, *FEW, "--concurrency", "2", "--json", *more)
        return prompts(server.requests[before:]), json.loads(out)["seed"]

    first, seed = asked()
    second, other = asked()
    again, told = asked("--seed", str(seed))
    assert 25 == len(first) == len(set(first))
    assert not set(first) & set(second)
    assert (sorted(first), seed) == (sorted(again), told)
    assert other != seed


def test_the_class_implies_its_protocol(raw_server, capsys):
    body = b'{"data":[{"embedding":[0.5,0.25]}],"usage":{"prompt_tokens":9}}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    server = raw_server(lambda connection, _number: connection.sendall(head + body) or "")
    few = ["--model", "m", "--requests", "5", "--warmup", "0", "--no-selfcheck", "--json"]
    _, out, _ = command(capsys, server.url, "--workload", "embedding", *few)
    assert {"ok": 5} == json.loads(out)["counters"]["outcomes"]
    posts = {request.split(b" ", 2)[1] for request in server.requests if request.startswith(b"POST")}
    assert {b"/v1/embeddings"} == posts


def test_steps_spreads_limits_and_headers_can_be_given(raw_server, capsys):
    server = engine(raw_server)
    status, out, _ = command(
        capsys, server.url, "--model", "m", "--phase", "0.5@20", "--phase", "0.5@20:60",
        "--prompt-tokens", "30", "--prompt-spread", "uniform:10",
        "--output-spread", "normal:2:1:6", "--output-tokens", "4", "--header", "X-Tenant=blue",
        "--stall-limit", "7", "--no-selfcheck", "--json",
    )  # fmt: skip
    said = json.loads(out)
    assert (0, {"ok": 30}) == (status, said["counters"]["outcomes"])
    assert (7.0, 30.0) == (said["load"]["limits"]["stall_s"], said["load"]["limits"]["first_token_s"])
    assert {True} == {b"x-tenant: blue" in request.lower() for request in server.requests}
    lengths = {len(prompt.split()) for prompt in prompts(server.requests)}
    assert 20 <= min(lengths) < max(lengths) <= 40


def test_what_a_trace_left_out_is_told(reference, capsys, tmp_path):
    (tmp_path / "b.csv").write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,9,2,11,A\n5.1,ChatGPT,9,0,9,A\n"
    )
    trace = ["--model", "m", "--trace", str(tmp_path / "b.csv"), "--no-selfcheck"]
    assert "trace: 1 of 2 left out: failed requests" in command(capsys, reference, *trace)[1]


def test_the_endpoints_own_context_is_kept(raw_server, capsys):
    server = engine(raw_server, context=100)
    few = ["--model", "m", "--requests", "3", "--warmup", "0", "--no-selfcheck"]
    status, _, err = command(capsys, server.url, *few, "--prompt-tokens", "90", "--output-tokens", "20")
    assert 4 == status
    assert "110 tokens of prompt and output exceed the model's context of 100 (so says http" in err
    status, _, err = command(
        capsys,
        server.url,
        *few,
        "--prompt-tokens",
        "40",
        "--output-tokens",
        "4",
        "--prompt-spread",
        "normal:9",
    )
    assert (4, True) == (status, "without `most` a request may exceed" in err)
    assert all(request.startswith(b"GET") for request in server.requests)
    assert 0 == command(capsys, server.url, *few, "--prompt-tokens", "90", "--output-tokens", "10")[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rate", "0"], "rate_per_s: 0 is not above 0"),
        (["--requests", "0"], "--requests: 0 is below 1"),
        (["--duration", "-1"], "--duration: -1 is not above 0"),
        (["--concurrency", "0"], "concurrency: 0 is below 1"),
        (["--prompt-tokens", "100", "--context-tokens", "50"], "exceed the model's context of 50"),
        (["--trace", "absent.jsonl"], "absent.jsonl: cannot be read"),
        (["--workload", "chat"], "no workload 'chat'; valid: assistant"),
        (["--protocol", "grpc"], "unknown protocol 'grpc'"),
        (["--api-key-env", "RACKGATE_NO_SUCH_KEY"], "RACKGATE_NO_SUCH_KEY is not set"),
        (["--arrival", "gamma"], "gamma arrivals need --rate or --phase"),
        (["--phase", "10x5"], "--phase: '10x5' is not SECONDS@RATE"),
        (
            ["--prompt-spread", "wide:5"],
            "--prompt-spread: 'wide:5' is not uniform|normal|lognormal:DEVIATION",
        ),
        (["--stall-limit", "0"], "--stall-limit: 0 is not above 0"),
        (["--rate", "0.1", "--duration", "2"], "0.1/s for 2 s are no request at all"),
        (["--find-knee"], "--find-knee needs --slo-ttft-ms"),
        (["--tokenizer", "absent.json"], "tokenizer absent.json"),
    ],
)
def test_an_impossible_load_is_refused_before_the_first_request(reply, capsys, arguments, words):
    server = reply(b"")
    status, _, err = command(capsys, server.url, "--model", "m", *arguments)
    assert (4, 0) == (status, server.connections)
    assert words in err
    assert all(line.startswith("rackgate load: ") for line in err.splitlines())


def test_a_url_that_is_none_is_refused(capsys):
    assert 4 == command(capsys, "ftp://x", "--model", "m")[0]


def test_ctrl_c_keeps_what_was_measured(reference):
    code = "import sys; from rackgate.cli import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            code,
            "load",
            reference,
            "--model",
            "m",
            "--duration",
            "60",
            "--output-tokens",
            "2",
            "--json",
            "--slo-ttft-ms",
            "9000",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    time.sleep(4.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    said = json.loads(out)
    assert (2, True, True) == (process.returncode, said["interrupted"], said["counters"]["reconciles"]), err
    assert said["counters"]["outcomes"]["ok"] > 0
    assert ["UNKNOWN"] == [one["verdict"] for one in said["bounds"].values()]


NOW = LiveState(
    t_ns=30_000_000_000,
    start_ns=10_000_000_000,
    scheduled=80,
    started=80,
    dropped=2,
    in_flight=5,
    share_done=0.5,
)


def sample(outcome, wait_ms):
    first = None if wait_ms is None else round(wait_ms * 1e6)
    return Sample(
        request_id="r",
        engine="e",
        load="l",
        label="t",
        outcome=outcome,
        scheduled_ns=0,
        sent_ns=0,
        first_token_ns=first,
    )


def test_progress_says_where_the_load_stands():
    load = Load(
        name="l", prompt_tokens=1, output_tokens=1, arrival=Arrival.POISSON, rate_per_s=4.0, duration_s=40.0
    )
    recent = [
        sample(Outcome.OK, 10),
        sample(Outcome.OK, 20),
        sample(Outcome.OK, 90),
        sample(Outcome.REFUSED, None),
    ]
    text = progress_text(load, NOW, recent)
    assert text == (
        "20 s, 20 s left | offered 4/s, achieved 3.75/s | in flight 5 | TTFT P50 20 ms, P99 90 ms"
        " | errors 25.0% | 2 dropped"
    )
    assert "warming up" == progress_text(load, None, [])


def test_rates_are_those_of_the_workers_counters_however_few_requests_are_looked_at():
    load = Load(
        name="l", prompt_tokens=1, output_tokens=1, arrival=Arrival.POISSON,
        phases=(Phase(duration_s=40.0, rate_per_s=10.0, to_rate_per_s=9000.0),),
    )  # fmt: skip
    later = replace(NOW, t_ns=NOW.t_ns + 2_000_000_000, scheduled=16_080, started=16_078, in_flight=3)
    text = progress_text(load, later, [sample(Outcome.OK, 10)], before=NOW)
    assert "offered 8000/s, achieved 8000/s" in text
    closed = replace(load, arrival=Arrival.CLOSED, phases=())
    assert " | achieved 8000/s | " in progress_text(closed, later, [], before=NOW)
    assert "no rate yet" in progress_text(load, later, [], before=later)


def test_a_log_has_a_line_every_so_often_and_nothing_is_drawn_over(reference, tmp_path):
    load = Load(
        name="l", prompt_tokens=9, output_tokens=1, arrival=Arrival.CONSTANT, rate_per_s=40.0, concurrency=9,
        duration_s=3.0, warmup_requests=0,
    )  # fmt: skip
    stream, endpoint = io.StringIO(), Endpoint(entity="e", url=reference, model="m")
    assert 30.0 == StreamProgress(stream).every_s
    with start_load(load, [endpoint], label="t", samples_path=tmp_path / "x", seed=1) as running:
        show_progress(running, load, StreamProgress(stream, log_every_s=1.0))
        assert running.finish().reason is None
    lines = stream.getvalue().splitlines()
    assert len(lines) >= 2
    assert "\r" not in stream.getvalue()
    assert all(" | offered " in line or line == "warming up" for line in lines), lines
    offered = float(lines[-1].partition(" | offered ")[2].partition("/s")[0])
    assert 40 == pytest.approx(offered, rel=0.1)


def test_the_line_updates_on_a_terminal_only(reference, tmp_path):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    load = Load(name="l", prompt_tokens=9, output_tokens=2, concurrency=2, duration_s=2.5, warmup_requests=0)
    stream = Terminal()
    with start_load(
        load, [Endpoint(entity="e", url=reference, model="m")], label="t", samples_path=tmp_path / "x", seed=1
    ) as running:
        show_progress(running, load, StreamProgress(stream))
        assert running.finish().reason is None
    assert stream.getvalue().count("\n") == 0
    assert "in flight 2" in stream.getvalue()
    assert [] == [path.name for path in tmp_path.iterdir() if path.name.endswith(".now")]
