"""The API of one engine before any hour of load: what it answers, and how it refuses."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rackgate.nouns.measurement import Reason
from rackgate.nouns.route import DIRECT, Route

if TYPE_CHECKING:
    import httpx


SMOKE = {
    "api_completion": "1 if /v1/completions answers with text, a finish reason and its token counts, else 0.",
    "api_chat": "1 if a chat is answered with a message, a finish reason and its token counts, else 0.",
    "api_structured_output": "1 if an answer that was asked for by a JSON schema is of that schema, else 0.",
    "api_tool_call": "1 if a tool that was asked for by its name is called with arguments in JSON, else 0.",
    "api_unknown_model": "1 if a model that is not served is refused with 404 and an error in JSON, else 0.",
    "api_bad_json": "1 if a body that is no JSON is refused with 400 or 422 and an error in JSON, else 0.",
}
"""What is asked of an API, and when it holds."""

OFFERED = {
    "api_completion": "completions",
    "api_structured_output": "structured_output",
    "api_tool_call": "tool_calls",
}
"""What is asked only of an engine that is declared to offer it."""

_PROMPT = "Say hello."
_TOKENS = 16
_SHAPED_TOKENS = 128
_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Bern", "Rome"]}, "open": {"type": "boolean"}},
    "required": ["city", "open"],
    "additionalProperties": False,
}
_TOOL = {
    "type": "function",
    "function": {
        "name": "opening_hours",
        "description": "Tell when a shop of a city is open.",
        "parameters": _SCHEMA,
    },
}
_CHAT, _COMPLETION = "/v1/chat/completions", "/v1/completions"


@dataclass(frozen=True, slots=True)
class Shown:
    """What one question showed: whether it holds, None with a reason if there was no answer."""

    holds: bool | None
    text: str
    reason: Reason | None = None


class _Wrong(ValueError):
    """An answer is not as the API says."""


def smoke_api(
    url: str,
    model: str,
    headers: Mapping[str, str],
    *,
    offers: tuple[str, ...] = (),
    route: Route = DIRECT,
    deadline_s: float = 30.0,
) -> dict[str, Shown]:
    """Return what each question shows of an engine that speaks OpenAI's API.

    Never raises. What is not offered is not asked; an engine that is silent says nothing of its API.
    """
    from rackgate.engines.client import http_client

    asked = [name for name in SMOKE if OFFERED.get(name) is None or OFFERED[name] in offers]
    deadline, found = time.monotonic() + deadline_s, dict[str, Shown]()
    headers = {**headers, "content-type": "application/json"}
    with http_client(url, route, headers=headers, base_url=url.rstrip("/")) as client:
        for name in asked:
            path, body, judge = _question(name, model)
            left_s = max(0.05, deadline - time.monotonic())
            found[name] = _shown(client, path, body, judge, left_s)
    return found


def _question(name: str, model: str) -> tuple[str, bytes, Callable[[httpx.Response], str]]:
    """Return (path, body, the function that judges its answer or raises _Wrong)."""
    said: dict[str, Any] = {"model": model, "max_tokens": _TOKENS, "temperature": 0}
    chat = {**said, "messages": [{"role": "user", "content": _PROMPT}]}
    shape = {"type": "json_schema", "json_schema": {"name": "shop", "schema": _SCHEMA, "strict": True}}
    called = {"type": "function", "function": {"name": "opening_hours"}}
    shaped = {**chat, "max_tokens": _SHAPED_TOKENS}
    questions: dict[str, tuple[str, Any, Callable[[httpx.Response], str]]] = {
        "api_completion": (_COMPLETION, {**said, "prompt": _PROMPT}, _completion),
        "api_chat": (_CHAT, chat, _chat),
        "api_structured_output": (_CHAT, {**shaped, "response_format": shape}, _structured),
        "api_tool_call": (_CHAT, {**shaped, "tools": [_TOOL], "tool_choice": called}, _tool_call),
        "api_unknown_model": (_CHAT, {**chat, "model": "rackgate-no-such-model"}, _refusal(404)),
        "api_bad_json": (_CHAT, '{"model": ', _refusal(400, 422)),
    }
    path, body, judge = questions[name]
    return path, (body if isinstance(body, str) else json.dumps(body)).encode(), judge


def _shown(
    client: httpx.Client, path: str, body: bytes, judge: Callable[[httpx.Response], str], left_s: float
) -> Shown:
    import httpx

    try:
        response = client.post(path, content=body, timeout=left_s)
    except httpx.TimeoutException:
        return Shown(None, f"{path} did not answer before the deadline", Reason.TIMEOUT)
    except httpx.HTTPError as error:
        return Shown(None, f"{path}: {error or type(error).__name__}", Reason.UNREACHABLE)
    if response.status_code in (401, 403):
        return Shown(None, f"{path} answered {response.status_code}", Reason.NO_PERMISSION)
    try:
        return Shown(True, f"{path}: {judge(response)}")
    except _Wrong as wrong:
        return Shown(False, f"{path} answered {response.status_code}: {wrong}")


def _body(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        raise _Wrong(f"no JSON: {response.text[:120]!r}") from None
    if not isinstance(body, dict):
        raise _Wrong("JSON that is no object")
    return body


def _choice(response: httpx.Response) -> dict[str, Any]:
    body = _body(response)
    if response.status_code != 200:
        raise _Wrong(f"{body.get('error') or body}"[:200])
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise _Wrong("no choices in it")
    usage = body.get("usage")
    counted = isinstance(usage, dict) and all(
        isinstance(usage.get(name), int) and usage[name] > 0
        for name in ("prompt_tokens", "completion_tokens")
    )
    if not counted:
        raise _Wrong(f"its usage does not count tokens: {usage}")
    if not choices[0].get("finish_reason"):
        raise _Wrong("no finish_reason")
    return choices[0]


def _message(response: httpx.Response) -> dict[str, Any]:
    message = _choice(response).get("message")
    if not isinstance(message, dict):
        raise _Wrong("a choice without a message")
    return message


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Wrong(f"no text in it: {value!r}")
    return value


def _completion(response: httpx.Response) -> str:
    return f"{_text(_choice(response).get('text'))[:40]!r}"


def _chat(response: httpx.Response) -> str:
    message = _message(response)
    # A model that thinks first may spend all its tokens on that.
    texts = (message.get(name) for name in ("content", "reasoning_content", "reasoning"))
    return f"{_text(next((text for text in texts if text), None))[:40]!r}"


def _structured(response: httpx.Response) -> str:
    return f"{_conforming(_text(_message(response).get('content')))}"


def _tool_call(response: httpx.Response) -> str:
    calls = _message(response).get("tool_calls")
    if not isinstance(calls, list) or not calls:
        raise _Wrong("no tool was called")
    called = calls[0].get("function") or {}
    if called.get("name") != "opening_hours":
        raise _Wrong(f"another tool was called: {called.get('name')!r}")
    return f"opening_hours({_conforming(_text(called.get('arguments')))})"


def _conforming(text: str) -> dict[str, Any]:
    """Return the object that a text is; raises _Wrong if it is not of the schema that was asked for."""
    try:
        value = json.loads(text)
    except ValueError:
        raise _Wrong(f"its text is no JSON: {text[:120]!r}") from None
    good = (
        isinstance(value, dict)
        and set(value) == {"city", "open"}
        and value["city"] in ("Bern", "Rome")
        and isinstance(value["open"], bool)
    )
    if not good:
        raise _Wrong(f"JSON of another shape: {text[:120]}")
    return dict(value)


def _refusal(*statuses: int) -> Callable[[httpx.Response], str]:
    def judge(response: httpx.Response) -> str:
        expected = " or ".join(str(one) for one in statuses)
        if response.status_code not in statuses:
            raise _Wrong(f"{expected} was expected: {response.text[:120]!r}")
        body = _body(response)
        error = body.get("error", body)
        said = error.get("message") or error.get("detail") if isinstance(error, dict) else error
        return f"{response.status_code}, {_text(str(said or ''))[:80]!r}"

    return judge
