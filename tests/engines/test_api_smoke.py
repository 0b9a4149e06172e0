"""What the API smoke sees of an engine: of the simulated one, of crooked ones, of one that is silent."""

import json
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rackgate.checks.plan import plan_checks
from rackgate.config.target_file import parse_target
from rackgate.engines.api_smoke import SMOKE, smoke_api
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.measurement import Reason
from rackgate.nouns.slo import Op, Scope, Slo

METRICS = shipped_registry().metrics

ALL = ("completions", "structured_output", "tool_calls")
USAGE = {"prompt_tokens": 3, "completion_tokens": 4}
GOOD = '{"city": "Bern", "open": true}'


@contextmanager
def server(answer):
    """Serve `answer(path, body or None) -> (status, JSON or bytes)` on the loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            raw = self.rfile.read(int(self.headers["content-length"]))
            try:
                body = json.loads(raw)
            except ValueError:
                body = None
            status, said = answer(self.path, body)
            data = said if isinstance(said, bytes) else json.dumps(said).encode()
            with suppress(ConnectionError):
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_address[1]}"
        finally:
            running.shutdown()
            thread.join()


def message(**fields):
    said = {"role": "assistant", "content": "hello", **fields}
    return 200, {"choices": [{"message": said, "finish_reason": "stop"}], "usage": USAGE}


def called(name="opening_hours", arguments=GOOD):
    return message(content=None, tool_calls=[{"function": {"name": name, "arguments": arguments}}])


def proper(path, body):
    if body is None:
        return 400, {"error": {"message": "the body is no JSON"}}
    if body["model"] != "m":
        return 404, {"error": {"message": "no such model"}}
    if path == "/v1/completions":
        return 200, {"choices": [{"text": "hello", "finish_reason": "stop"}], "usage": USAGE}
    if "tools" in body:
        return called()
    return message(content=GOOD) if "response_format" in body else message()


def asked(answer, offers=ALL):
    with server(answer) as url:
        return smoke_api(url, "m", {}, offers=offers, deadline_s=20.0)


def test_an_engine_that_answers_and_refuses_as_the_api_says_holds():
    found = asked(proper)
    assert dict.fromkeys(SMOKE, True) == {name: one.holds for name, one in found.items()}
    assert "Bern" in found["api_tool_call"].text


def test_what_is_not_offered_is_not_asked():
    assert {"api_chat", "api_unknown_model", "api_bad_json"} == set(asked(proper, offers=()))


def answering(question, said):
    """Answer one of the questions otherwise."""

    def answer(path, body):
        which = "api_chat"
        if body is None:
            which = "api_bad_json"
        elif body["model"] != "m":
            which = "api_unknown_model"
        elif path == "/v1/completions":
            which = "api_completion"
        elif "tools" in body:
            which = "api_tool_call"
        elif "response_format" in body:
            which = "api_structured_output"
        return said if which == question else proper(path, body)

    return answer


NO_USAGE = (200, {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]})
ENDLESS = (200, {"choices": [{"message": {"content": "x"}}], "usage": USAGE})


@pytest.mark.parametrize(
    ("question", "said", "word"),
    [
        ("api_completion", (404, {"detail": "Not Found"}), "Not Found"),
        ("api_completion", (200, {"choices": [], "usage": USAGE}), "no choices"),
        ("api_chat", NO_USAGE, "does not count tokens"),
        ("api_chat", ENDLESS, "no finish_reason"),
        ("api_chat", message(content="  "), "no text"),
        ("api_chat", (200, b"<html>"), "no JSON"),
        ("api_chat", (200, [1]), "no object"),
        ("api_chat", (500, {"error": "broken"}), "broken"),
        ("api_structured_output", message(content="Bern is open"), "no JSON"),
        ("api_structured_output", message(content='{"city": "Paris", "open": true}'), "another shape"),
        ("api_structured_output", message(content='{"city": "Bern"}'), "another shape"),
        ("api_tool_call", message(), "no tool was called"),
        ("api_tool_call", called(name="other"), "another tool"),
        ("api_tool_call", called(arguments="{"), "no JSON"),
        ("api_unknown_model", message(), "404 was expected"),
        ("api_unknown_model", (404, b"<html>"), "no JSON"),
        ("api_bad_json", (500, {"error": "boom"}), "400 or 422 was expected"),
        ("api_bad_json", (400, {"error": {"message": ""}}), "no text"),
    ],
)
def test_each_crooked_answer_fails_its_own_question_alone(question, said, word):
    found = asked(answering(question, said))
    assert [question] == [name for name, one in found.items() if not one.holds]
    assert (found[question].holds, word in found[question].text) == (False, True)


def test_a_model_that_only_thinks_in_so_few_tokens_has_answered():
    found = asked(answering("api_chat", message(content=None, reasoning_content="hm")))
    assert found["api_chat"].holds


def test_a_key_that_is_refused_says_nothing_of_the_api():
    found = asked(lambda *_: (401, {"error": "key"}))
    assert {(None, Reason.NO_PERMISSION)} == {(one.holds, one.reason) for one in found.values()}


def test_an_engine_that_is_not_there_says_nothing_of_the_api():
    found = smoke_api("http://127.0.0.1:9", "m", {}, deadline_s=5.0)
    assert {(None, Reason.UNREACHABLE)} == {(one.holds, one.reason) for one in found.values()}


def test_an_engine_that_hangs_is_unknown_at_the_deadline():
    free = threading.Event()

    def hang(*_):
        free.wait(20.0)
        return message()

    with server(hang) as url:
        found = smoke_api(url, "m", {}, offers=ALL, deadline_s=0.3)
        free.set()
    assert {(None, Reason.TIMEOUT)} == {(one.holds, one.reason) for one in found.values()}


@pytest.mark.parametrize(
    ("metric", "engine", "absent"),
    [
        ("api_chat", {}, ""),
        ("api_chat", {"protocol": "triton"}, "speaks triton"),
        ("api_tool_call", {}, "does not say that engine e offers tool_calls"),
        ("api_tool_call", {"offers": ["tool_calls"]}, ""),
    ],
)
def test_a_question_is_asked_of_an_engine_that_is_declared_to_answer_it(metric, engine, absent):
    document = {
        "target": {"name": "rack", "model": "m"},
        "engine": [{"name": "e", "launcher": "remote", "url": "http://h:1", **engine}],
    }
    target = parse_target(document, "rack.toml", {"remote": lambda _: []})
    row = Slo(
        id=f"preflight.{metric}",
        stage="preflight",
        metric=metric,
        statistic="value",
        op=Op.EQUAL,
        bound=1.0,
        unit="bool",
        scope=Scope.ENGINE,
        source="test",
    )
    (check,) = plan_checks(target, [row], metrics=METRICS, probes={})
    assert (bool(absent), absent in check.declared_absent) == (bool(check.declared_absent), True)
