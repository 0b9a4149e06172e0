from __future__ import annotations

import json
import threading
from collections import Counter

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rackgate.nouns.engine import Killable
from rackgate.simulator.knobs import GatewayKnobs
from rackgate.simulator.rack import start_rack
from rackgate.simulator.scenarios import Scenario
from rackgate.simulator.settings import RackSettings

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"


def served_by(http, rack, body, times):
    answers = [http.post(f"{rack.target.gateway.url}{CHAT}", json=body) for _ in range(times)]
    return Counter((answer.status_code, answer.headers.get("x-served-by")) for answer in answers)


def in_rotation(rack):
    return {each["engine"] for each in rack.gateway_status()["engines"] if each["in_rotation"]}


def test_ties_go_round_all_engines(http, rack, ask):
    expected = {(200, engine.entity): 2 for engine in rack.engines}
    assert served_by(http, rack, ask(), 8) == expected


def test_a_stream_passes_token_by_token(http, rack, ask):
    body = ask(stream=True, max_tokens=20, ignore_eos=True)
    with http.stream("POST", f"{rack.target.gateway.url}{CHAT}", json=body) as answer:
        pieces = list(answer.iter_raw())
    assert len(pieces) >= 10
    assert b"".join(pieces).endswith(b"data: [DONE]\n\n")


def test_the_request_id_comes_back_and_errors_of_engines_pass(http, rack, ask):
    url = f"{rack.target.gateway.url}{CHAT}"
    assert http.post(url, json=ask(), headers={"x-request-id": "me-7"}).headers["x-request-id"] == "me-7"
    refused = http.post(url, json=ask(model="other"))
    assert (refused.status_code, refused.json()["error"]["type"]) == (404, "NotFoundError")


def test_models_health_status_and_metrics_answer(http, rack):
    url = rack.target.gateway.url
    assert http.get(f"{url}/v1/models").json()["data"][0]["id"] == rack.target.model
    assert http.get(f"{url}/health").status_code == 200
    assert in_rotation(rack) == {engine.entity for engine in rack.engines}
    names = {family.name for family in text_string_to_metric_families(http.get(f"{url}/metrics").text)}
    assert {"gateway_in_flight", "gateway_engine_requests", "gateway_failovers"} <= names


def test_a_killed_engine_is_left_out_and_comes_back(http, ask, wait_until):
    with start_rack(RackSettings()) as rack:
        victim = rack.engines[1]
        assert isinstance(victim.handle, Killable)
        victim.handle.kill()
        after_kill = served_by(http, rack, ask(), 9)
        assert {status for status, _ in after_kill} == {200}
        assert (200, victim.entity) not in after_kill
        wait_until(lambda: not victim.handle.alive())
        with pytest.raises(httpx.ConnectError):
            http.get(f"{victim.url}/health")
        telemetry = http.get(rack.target.nodes[0].exporter_url)
        assert telemetry.status_code == 200
        victim.handle.restart()
        wait_until(lambda: victim.entity in in_rotation(rack))
        assert victim.handle.alive()
        assert (200, victim.entity) in served_by(http, rack, ask(), 8)


def test_a_request_that_was_waiting_for_its_first_token_moves_to_another_engine(http, ask, wait_until):
    with start_rack(RackSettings(scenario="slow_card")) as rack:
        slow = rack.engines[1]
        answers = []
        clients = [
            threading.Thread(
                target=lambda: answers.append(http.post(f"{rack.target.gateway.url}{CHAT}", json=ask()))
            )
            for _ in range(4)
        ]
        for client in clients:
            client.start()
        wait_until(lambda: rack.gateway_status()["engines"][1]["outstanding"] == 1)
        slow.handle.kill()
        for client in clients:
            client.join(30)
        failovers = rack.gateway_status()["failovers"]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert failovers == 1


def test_an_engine_that_dies_in_the_middle_of_a_stream_ends_it_with_an_error_event(http, ask):
    with start_rack(RackSettings(nodes=1, cards=1)) as rack:
        body = ask(stream=True, max_tokens=5000, ignore_eos=True)
        with http.stream("POST", f"{rack.target.gateway.url}{CHAT}", json=body) as answer:
            pieces = answer.iter_raw()
            received = next(pieces)
            rack.engines[0].handle.kill()
            received += b"".join(pieces)
    last = received.decode().rstrip().rpartition("\n\n")[2].removeprefix("data: ")
    assert json.loads(last)["error"]["code"] == 502
    assert b"[DONE]" not in received


def test_without_any_engine_the_gateway_says_503(http, ask, wait_until):
    with start_rack(RackSettings(nodes=1, cards=1)) as rack:
        rack.engines[0].handle.kill()
        wait_until(lambda: not in_rotation(rack))
        assert http.post(f"{rack.target.gateway.url}{CHAT}", json=ask()).status_code == 503
        assert http.get(f"{rack.target.gateway.url}/health").status_code == 503


def test_above_its_limit_the_gateway_refuses_with_retry_after(http, ask):
    limited = Scenario(name="own", summary="one at a time", gateway=GatewayKnobs(max_in_flight=1))
    with start_rack(RackSettings(nodes=1, cards=1), scenario=limited) as rack:
        body = ask(stream=True, max_tokens=5000, ignore_eos=True)
        with http.stream("POST", f"{rack.target.gateway.url}{CHAT}", json=body) as answer:
            pieces = answer.iter_raw()  # the connection lives as long as this
            next(pieces)
            refused = httpx.post(f"{rack.target.gateway.url}{CHAT}", json=ask())
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


def test_a_gateway_without_failover_keeps_sending_to_a_dead_engine(http, ask, wait_until):
    with start_rack(RackSettings(scenario="no_failover")) as rack:
        rack.engines[2].handle.kill()
        wait_until(lambda: not rack.engines[2].handle.alive())
        assert served_by(http, rack, ask(), 8)[502, None] == 2


def test_an_anonymous_gateway_names_nobody(http, ask):
    with start_rack(RackSettings(scenario="anonymous_gateway")) as rack:
        assert served_by(http, rack, ask(), 2) == {(200, None): 2}


def test_an_unbalanced_gateway_prefers_one_engine(http, ask):
    with start_rack(RackSettings(scenario="unbalanced_gateway")) as rack:
        assert served_by(http, rack, ask(), 6) == {(200, "node1/gpu0"): 6}


def test_a_buffering_gateway_keeps_the_stream_back(http, ask):
    with (
        start_rack(RackSettings(scenario="buffering_gateway")) as rack,
        http.stream("POST", f"{rack.target.gateway.url}{CHAT}", json=ask(stream=True)) as answer,
    ):
        assert b"[DONE]" in next(answer.iter_raw())


@pytest.mark.parametrize("scenario", ["dead_engine", "hung_engine", "unresolvable_engine", "wrong_model"])
def test_an_engine_that_gives_no_token_is_not_in_rotation(scenario):
    with start_rack(RackSettings(scenario=scenario)) as rack:
        assert in_rotation(rack) == {"node1/gpu0", "node1/gpu1", "node2/gpu0"}


def test_a_gateway_that_is_down_refuses_connections(http):
    with start_rack(RackSettings(scenario="gateway_down")) as rack, pytest.raises(httpx.ConnectError):
        http.get(f"{rack.target.gateway.url}/health")
