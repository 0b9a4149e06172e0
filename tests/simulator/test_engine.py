from __future__ import annotations

import itertools
import json
import socket
import threading

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rackgate.engines.api_smoke import SMOKE, smoke_api
from rackgate.simulator.child_process import bound_socket
from rackgate.simulator.engine.model import answer_to
from rackgate.simulator.rack import start_rack
from rackgate.simulator.scenarios import Scenario
from rackgate.simulator.settings import RackSettings

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"


def frames(text):
    return [line.removeprefix("data: ") for line in text.split("\n\n") if line]


def metrics(http, engine):
    text = http.get(f"{engine.url}/metrics").text
    return {
        (sample.name, sample.labels.get("finished_reason", sample.labels.get("le"))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_stream_is_role_tokens_finish_usage_and_done(http, rack, ask):
    body = ask(stream=True, ignore_eos=True, stream_options={"include_usage": True})
    answer = http.post(f"{rack.engines[0].url}{CHAT}", json=body)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, done = frames(answer.text)
    parsed = [json.loads(chunk) for chunk in chunks]
    assert done == "[DONE]"
    assert parsed[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    tokens = [chunk["choices"][0]["delta"]["content"] for chunk in parsed[1:7]]
    assert len(set(tokens)) > 3
    assert parsed[7]["choices"][0]["finish_reason"] == "length"
    assert parsed[8]["choices"] == []
    assert parsed[8]["usage"] == {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}


def test_a_stream_without_include_usage_has_no_usage(http, rack, ask):
    answer = http.post(f"{rack.engines[0].url}{CHAT}", json=ask(stream=True))
    assert "usage" not in answer.text


def test_the_same_prompt_gets_the_same_answer_from_every_engine_streamed_or_not(http, rack, ask):
    whole = {
        http.post(f"{engine.url}{CHAT}", json=ask()).json()["choices"][0]["message"]["content"]
        for engine in rack.engines
    }
    streamed = http.post(f"{rack.engines[0].url}{CHAT}", json=ask(stream=True)).text
    text = "".join(
        json.loads(frame)["choices"][0]["delta"].get("content", "") for frame in frames(streamed)[:-1]
    )
    assert whole == {text}


def test_no_word_comes_twice_in_a_row():
    answer = answer_to("any prompt", "model", 1)
    words = [answer.next_word().strip().lower() for _ in range(2000)]
    assert not any(first == second for first, second in itertools.pairwise(words))


def test_without_ignore_eos_the_model_stops_by_itself(http, rack, ask):
    choice = http.post(f"{rack.engines[0].url}{CHAT}", json=ask(max_tokens=500)).json()
    assert choice["choices"][0]["finish_reason"] == "stop"
    assert 24 <= choice["usage"]["completion_tokens"] < 128


def test_text_completions_are_served_too(http, rack):
    body = {"model": "rackgate/simulated-8b", "prompt": "one two three", "max_tokens": 4}
    answer = http.post(f"{rack.engines[0].url}/v1/completions", json=body).json()
    assert answer["object"] == "text_completion"
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_an_answer_has_the_shape_that_was_asked_for(http, rack):
    engine = rack.engines[0]
    found = smoke_api(engine.url, engine.spec.model, {}, offers=engine.spec.offers)
    assert dict.fromkeys(SMOKE, True) == {name: one.holds for name, one in found.items()}


def test_an_unknown_model_is_404_with_an_openai_error(http, rack, ask):
    answer = http.post(f"{rack.engines[0].url}{CHAT}", json=ask(model="other"))
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "NotFoundError"


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"model": "rackgate/simulated-8b"}',
        b'{"messages": [{"content": "a"}], "max_tokens": 0}',
    ],
)
def test_a_bad_body_is_400(http, rack, content):
    answer = http.post(f"{rack.engines[0].url}{CHAT}", content=content)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestError")


def test_who_served_and_which_request_is_in_the_headers(http, rack, ask):
    answer = http.post(f"{rack.engines[2].url}{CHAT}", json=ask(), headers={"X-Request-Id": "abc-1"})
    assert (answer.headers["x-served-by"], answer.headers["x-request-id"]) == ("node2/gpu0", "abc-1")


def test_models_and_health_answer(http, rack):
    url = rack.engines[0].url
    assert [card["id"] for card in http.get(f"{url}/v1/models").json()["data"]] == ["rackgate/simulated-8b"]
    assert http.get(f"{url}/health").status_code == 200
    assert http.get(f"{url}/nowhere").status_code == 404


def test_the_metrics_page_counts_with_the_names_of_vllm(http, rack, ask):
    engine = rack.engines[3]
    before = metrics(http, engine)
    http.post(f"{engine.url}{CHAT}", json=ask(prompt="a b c d", ignore_eos=True))
    after = metrics(http, engine)
    grown = {key: after[key] - before[key] for key in after if after[key] != before[key]}
    assert grown.pop(("vllm:time_to_first_token_seconds_sum", None)) > 0
    assert {key for key in grown if key[0] == "vllm:time_to_first_token_seconds_bucket"}
    assert grown["vllm:prompt_tokens_total", None] == 4
    assert grown["vllm:generation_tokens_total", None] == 6
    assert grown["vllm:request_success_total", "length"] == 1
    assert grown["vllm:time_to_first_token_seconds_count", None] == 1
    names = {name for name, _ in after}
    assert {
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:num_preemptions_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
    } <= names


def test_a_client_that_leaves_frees_its_place(http, rack, ask, wait_until):
    engine = rack.engines[1]
    with httpx.stream(
        "POST", f"{engine.url}{CHAT}", json=ask(stream=True, max_tokens=2000, ignore_eos=True)
    ) as answer:
        pieces = answer.iter_raw()  # the connection lives as long as this
        next(pieces)
        assert metrics(http, engine)["vllm:num_requests_running", None] == 1
    wait_until(lambda: metrics(http, engine)["vllm:num_requests_running", None] == 0)
    assert metrics(http, engine)["vllm:kv_cache_usage_perc", None] == 0
    assert metrics(http, engine)["vllm:request_success_total", "abort"] >= 1


def test_requests_that_do_not_fit_the_cache_wait(http, ask, wait_until):
    small = Scenario(name="own", summary="a small cache", cards={"*": {"kv_capacity_tokens": 5000}})
    stop = threading.Event()

    def hold(url):
        body = ask(stream=True, max_tokens=2400, ignore_eos=True)
        with httpx.stream("POST", url, json=body, timeout=30) as answer:
            pieces = answer.iter_raw()
            next(pieces)
            stop.wait(30)

    with start_rack(RackSettings(nodes=1, cards=1), scenario=small) as rack:
        engine = rack.engines[0]
        clients = [threading.Thread(target=hold, args=(f"{engine.url}{CHAT}",)) for _ in range(2)]
        for client in clients:
            client.start()
        wait_until(lambda: metrics(http, engine)["vllm:num_requests_running", None] == 2)
        late = []
        body = ask(prompt="word " * 300)
        clients.append(
            threading.Thread(target=lambda: late.append(httpx.post(f"{engine.url}{CHAT}", json=body)))
        )
        clients[-1].start()
        wait_until(lambda: metrics(http, engine)["vllm:num_requests_waiting", None] == 1)
        assert metrics(http, engine)["vllm:kv_cache_usage_perc", None] == pytest.approx(0.96, abs=0.01)
        stop.set()
        for client in clients:
            client.join(30)
    assert [answer.status_code for answer in late] == [200]


@pytest.mark.parametrize(
    ("scenario", "models", "chat"), [("mute_models", 500, 200), ("wrong_model", 200, 404)]
)
def test_an_engine_can_be_wrong_in_one_way_only(http, ask, scenario, models, chat):
    with start_rack(RackSettings(scenario=scenario)) as rack:
        url = rack.engines[3].url
        assert http.get(f"{url}/v1/models").status_code == models
        assert http.post(f"{url}{CHAT}", json=ask()).status_code == chat


def test_a_hung_engine_is_healthy_and_gives_no_byte(http, ask):
    with start_rack(RackSettings(scenario="hung_engine")) as rack:
        assert http.get(f"{rack.engines[3].url}/health").status_code == 200
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{rack.engines[3].url}{CHAT}", json=ask(), timeout=0.5)


def test_an_empty_output_is_a_whole_stream_without_tokens(http, ask):
    with start_rack(RackSettings(scenario="empty_output")) as rack:
        body = ask(stream=True, stream_options={"include_usage": True})
        *chunks, done = frames(http.post(f"{rack.engines[1].url}{CHAT}", json=body).text)
    assert done == "[DONE]"
    assert json.loads(chunks[-1])["usage"]["completion_tokens"] == 0
    assert [json.loads(chunk)["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]] == ["", ""]


def test_stream_errors_break_their_share_of_the_requests(http, ask):
    ends = []
    with start_rack(RackSettings(scenario="stream_errors")) as rack:
        engine = rack.engines[1]
        for _ in range(40):
            text = ""
            try:
                with http.stream("POST", f"{engine.url}{CHAT}", json=ask(stream=True)) as answer:
                    for piece in answer.iter_text():
                        text += piece
            except httpx.RemoteProtocolError:
                ends.append("cut")
            else:
                ends.append("error" if '"error"' in text else "ok")
    assert {end: ends.count(end) for end in set(ends)} == {"ok": 24, "error": 8, "cut": 8}


def test_a_burst_stream_comes_in_one_piece(http, ask):
    with (
        start_rack(RackSettings(scenario="burst_stream")) as rack,
        http.stream("POST", f"{rack.engines[1].url}{CHAT}", json=ask(stream=True)) as answer,
    ):
        first = next(answer.iter_raw())
    assert b"[DONE]" in first


def test_tokens_do_not_wait_for_each_other_on_the_wire(http, rack, ask):
    body = ask(stream=True, max_tokens=12, ignore_eos=True)
    with http.stream("POST", f"{rack.engines[0].url}{CHAT}", json=body) as answer:
        pieces = list(answer.iter_raw())
    assert len(pieces) > 8


def test_no_connection_delays_small_writes():
    listener = bound_socket()
    listener.listen()
    with socket.create_connection(listener.getsockname()), listener:
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP, "asyncio sets TCP_NODELAY by this"
