"""OpenAI-compatible chat completions, as engines and gateways really send them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rackgate.engines.protocols.answer import Answer, AnswerSoFar, Ending, Unreadable
from rackgate.engines.protocols.body_readers import BodyReader, StreamReader
from rackgate.engines.protocols.learned_events import Learned
from rackgate.engines.protocols.protocol import AnswerReader, ChatRequest, Dialect, json_bytes


def interpret(reading: AnswerSoFar, name: str, data: bytes) -> None:
    """Read one event. Raises `ValueError` if it is neither JSON nor `[DONE]`."""
    if data.strip() == b"[DONE]":
        reading.done()
        return
    try:
        frame = json.loads(data.decode())  # of bytes it would guess the encoding first
    except ValueError:
        if name == "error":
            reading.error = reading.error or (None, None, data.decode("utf-8", "replace"))
            return
        raise
    if not isinstance(frame, dict):
        if name != "error":
            raise Unreadable(f"a JSON object is due, not {type(frame).__name__}")
        frame = {"error": frame}
    _frame(reading, frame, named_error=name == "error")


def _frame(reading: AnswerSoFar, frame: dict[str, Any], *, named_error: bool = False) -> None:
    fingerprint = frame.get("system_fingerprint")
    if isinstance(fingerprint, str) and fingerprint:
        reading.system_fingerprint = fingerprint
    error = error_of(frame)
    if error is None and named_error:
        error = error_of({"error": frame})
    if error is not None:
        reading.error = reading.error or error
    choices = frame.get("choices")
    if choices:
        if not isinstance(choices, list):
            raise Unreadable("choices is no list")
        for choice in choices:
            if isinstance(choice, dict):
                _choice(reading, choice)
    _usage(reading, frame)


def frame_of(data: bytes) -> dict[str, Any]:
    """Return the JSON object that a body or an event is. Raises `ValueError` if it is none."""
    frame = json.loads(data)
    if not isinstance(frame, dict):
        raise Unreadable(f"a JSON object is due, not {type(frame).__name__}")
    return frame


def error_of(frame: dict[str, Any]) -> tuple[str | None, int | str | None, str] | None:
    """Return (type, code, message) of a top-level error in any of its spellings, else None."""
    error = frame.get("error")
    if not error:
        if frame.get("object") != "error":
            return None
        error = frame
    if isinstance(error, dict):
        kind = error.get("type")
        code = error.get("code")
        message = error.get("message") or json.dumps(error, ensure_ascii=False)
        return (
            kind if isinstance(kind, str) else None,
            code if isinstance(code, int | str) else None,
            str(message),
        )
    return None, None, str(error)


def _choice(reading: AnswerSoFar, choice: dict[str, Any]) -> None:
    reason = choice.get("finish_reason")
    delta = choice.get("delta") or choice.get("message") or {}
    if not isinstance(delta, dict):
        raise Unreadable("delta is no object")
    content, thought = _channels(delta.get("content") or choice.get("text"))
    for key in ("reasoning_content", "reasoning"):
        value = delta.get(key)
        if isinstance(value, str) and value:
            thought += value
            break
    calls = delta.get("tool_calls") or []
    if not isinstance(calls, list):
        raise Unreadable("tool_calls is no list")
    legacy = delta.get("function_call")
    if isinstance(legacy, dict):
        calls = [*calls, {"function": legacy}]
    if content or thought or calls:
        _token(reading, content, thought, calls)
    if isinstance(reason, str) and reason:
        reading.finish(reason)


def _token(reading: AnswerSoFar, content: str, thought: str, calls: list[Any]) -> None:
    if reading.done_seen:
        reading.warnings["tokens after [DONE]"] = None
        return
    reading.token(content)
    if thought:
        reading.reasoning.append(thought)
    for call in calls:
        if isinstance(call, dict):
            _tool_call(reading, call)


def _channels(content: Any) -> tuple[str, str]:
    """Return (answer, reasoning) of a content that is a string, null, or a list of typed parts."""
    if isinstance(content, str):
        return content, ""
    if content is None:
        return "", ""
    if not isinstance(content, list):
        raise Unreadable("content is neither a string nor a list of parts")
    answer = thought = ""
    for part in content:
        if isinstance(part, str):
            answer += part
        elif isinstance(part, dict) and part.get("type") == "thinking":
            inner = part.get("thinking")
            thought += inner if isinstance(inner, str) else _channels(inner)[0]
        elif isinstance(part, dict):
            text = part.get("text")
            answer += text if isinstance(text, str) else ""
    return answer, thought


def _tool_call(reading: AnswerSoFar, piece: dict[str, Any]) -> None:
    """Join a piece to its call: a new id or a name starts a call, whatever `index` says."""
    function = piece.get("function")
    function = function if isinstance(function, dict) else {}
    name = function.get("name") or ""
    arguments = function.get("arguments") or ""
    if not isinstance(arguments, str):  # some engines send the arguments as an object
        arguments = json.dumps(arguments, ensure_ascii=False)
    identity = piece.get("id") or ""
    known = reading.tool_call_ids
    if identity and identity in known:
        reading.tool_calls[known.index(identity)][1] += arguments
    elif identity or name or not reading.tool_calls:
        reading.tool_calls.append([str(name), arguments])
        known.append(str(identity))
    else:
        index = piece.get("index")
        known_index = index if isinstance(index, int) and 0 < index < len(known) else -1
        reading.tool_calls[known_index][1] += arguments


def _usage(reading: AnswerSoFar, frame: dict[str, Any]) -> None:
    usage = frame.get("usage")
    groq = frame.get("x_groq")
    if isinstance(groq, dict) and isinstance(groq.get("usage"), dict):
        _server_times(reading, groq["usage"])
        usage = usage or groq["usage"]
    timings = frame.get("timings")
    if isinstance(timings, dict):
        _timings(reading, timings)
    if not isinstance(usage, dict):
        return
    _server_times(reading, usage)
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    reading.usage(prompt, completion)
    if completion is not None and frame.get("choices"):
        reading.counted_along(completion)


def _timings(reading: AnswerSoFar, timings: dict[str, Any]) -> None:
    """llama.cpp's own counts; a usage object is preferred wherever it stands."""
    predicted, prompt = _count(timings, "predicted_n"), _count(timings, "prompt_n")
    if predicted is not None:
        reading.predicted_n = predicted
        if reading.usage_source != "usage":
            reading.completion_tokens = predicted
            reading.usage_source = "timings"
    if prompt is not None and reading.prompt_tokens is None:
        reading.prompt_tokens = prompt


def _server_times(reading: AnswerSoFar, usage: dict[str, Any]) -> None:
    for name in ("queue", "prompt", "completion"):
        value = usage.get(f"{name}_time")
        if isinstance(value, int | float):
            reading.server_times_s[name] = float(value)


def _count(source: dict[str, Any], key: str) -> int | None:
    value = source.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def interpret_body(reading: AnswerSoFar, name: str, data: bytes) -> None:  # noqa: ARG001 - a body has no name
    """Read a whole non-streamed body. Raises `ValueError` if it is no completion."""
    frame = frame_of(data)
    _frame(reading, frame)
    if reading.error is None and not frame.get("choices"):
        raise Unreadable("a 200 without choices")


def read_body(data: bytes, *, t_ns: int = 0) -> Answer:
    """Return the answer of a whole non-streamed 200 body."""
    reader = BodyReader(interpret_body)
    reader.feed(t_ns, data)
    return reader.close(t_ns, Ending.COMPLETE)


class ChatStream(StreamReader):
    """Reads one streamed chat completion: `feed` each read, then `close`."""

    def __init__(self) -> None:
        super().__init__(interpret, learned=_LEARNED)


_LEARNED = Learned(interpret)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAi:
    """The protocol. `exact_length` asks for all `max_tokens` with `ignore_eos`, which is not OpenAI's own."""

    exact_length: bool = True

    @property
    def dialect(self) -> Dialect:
        """A stream of events; what chats."""
        return Dialect(chats=True)

    def path(self, model: str) -> str:  # noqa: ARG002 - other protocols name the model in the path
        """Return the URL path to post to."""
        return "/v1/chat/completions"

    def body(self, request: ChatRequest) -> bytes:
        """Return the JSON body: temperature 0, usage asked for."""
        messages = [
            {"role": role, "content": text}
            for exchange in request.history
            for role, text in zip(("user", "assistant"), exchange, strict=True)
        ]
        messages.append({"role": "user", "content": request.prompt})
        body: dict[str, Any] = {
            "model": request.model,
            "messages": messages,
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "stream": request.stream,
        }
        if request.stream:
            body["stream_options"] = {"include_usage": True}
        if self.exact_length:
            body["ignore_eos"] = True
        return json_bytes(body)

    def reader(self, *, streamed: bool = True) -> AnswerReader:
        """Return a reader for one answer."""
        return ChatStream() if streamed else BodyReader(interpret_body, warning="not streamed")


OPENAI = OpenAi()
OPENAI_PLAIN = OpenAi(exact_length=False)
