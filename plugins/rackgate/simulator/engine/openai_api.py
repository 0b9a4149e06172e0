"""OpenAI's requests and answers, as far as the simulated engine knows them: chat, completions, embeddings."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import Any

from rackgate.simulator.engine.model import count_tokens
from rackgate.simulator.http_server import json_bytes

DONE = b"data: [DONE]\n\n"
_SIMPLEST: dict[str, Any] = {"string": "hello", "integer": 1, "number": 1.0, "boolean": True, "null": None}


class BadRequest(ValueError):
    """A request that cannot be served; `param` names the field at fault."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request for chat or for a completion.

    Without `max_tokens` the model stops by itself. `schema` is the JSON schema of the answer, `tool` the name
    and arguments of the tool to call.
    """

    model: str
    prompt: str
    prompt_tokens: int
    max_tokens: int | None
    ignore_eos: bool
    stream: bool
    include_usage: bool
    chat: bool
    schema: dict[str, Any] | None = None
    tool: tuple[str, str] | None = None


def parse_request(body: bytes, *, chat: bool) -> ChatRequest:
    """Return the request for chat or for a completion; raises BadRequest."""
    data = _json_object(body)
    prompt = _chat_prompt(data.get("messages")) if chat else data.get("prompt")
    if not isinstance(prompt, str):
        raise BadRequest("'prompt' must be a string", "prompt")
    options = data.get("stream_options") or {}
    limit = data.get("max_completion_tokens", data.get("max_tokens"))
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise BadRequest(f"max_tokens must be at least 1, got {limit!r}", "max_tokens")
    return ChatRequest(
        model=str(data.get("model", "")),
        prompt=prompt,
        prompt_tokens=count_tokens(prompt),
        max_tokens=limit if limit is not None or chat else 16,
        ignore_eos=data.get("ignore_eos") is True,
        stream=data.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        chat=chat,
        schema=_wanted_schema(data) if chat else None,
        tool=_wanted_tool(data) if chat else None,
    )


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body)
    except ValueError as problem:
        raise BadRequest(f"the body is not JSON: {problem}") from None
    if not isinstance(data, dict):
        raise BadRequest("the body is not a JSON object")
    return data


def _chat_prompt(messages: Any) -> str:
    if not isinstance(messages, list) or not messages:
        raise BadRequest("'messages' must be a list that is not empty", "messages")
    texts = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        if not isinstance(content, str):
            raise BadRequest("each message needs a 'content'", "messages")
        texts.append(content)
    return "\n".join(texts)


def _wanted_schema(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the JSON schema of the answer; None if the request has none."""
    wanted = body.get("response_format")
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        return None
    schema = (wanted.get("json_schema") or {}).get("schema")
    return schema if isinstance(schema, dict) else {}


def _wanted_tool(body: dict[str, Any]) -> tuple[str, str] | None:
    """Return (name, arguments in JSON) of the tool that must be called; None if the request names none."""
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return None
    name = (choice.get("function") or {}).get("name")
    for tool in body.get("tools") or ():
        function = tool.get("function") or {}
        if function.get("name") == name:
            return str(name), json.dumps(_instance_of(function.get("parameters") or {}))
    return None


def _instance_of(schema: dict[str, Any]) -> Any:
    """Return the simplest value of a JSON schema of enums, objects, arrays and plain types."""
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        return {name: _instance_of(member) for name, member in (schema.get("properties") or {}).items()}
    if kind == "array":
        return [_instance_of(schema.get("items") or {"type": "string"})]
    return _SIMPLEST.get(kind)


class AnswerFrames:
    """Makes the frames of one answer. The constant part of a token's frame is encoded only once."""

    __slots__ = ("_chat", "_envelope", "_prefix", "_schema", "_suffix", "_tool", "prompt_tokens")

    def __init__(self, request: ChatRequest, identifier: str) -> None:
        self._chat = request.chat
        self._schema, self._tool = request.schema, request.tool
        self.prompt_tokens = request.prompt_tokens
        kind = "chat.completion" if request.chat else "text_completion"
        self._envelope: dict[str, Any] = {
            "id": identifier,
            "object": kind,
            "created": int(time.time()),
            "model": request.model,
        }
        marked = b"data: " + json_bytes(self._chunk([self._choice("\0", None)])) + b"\n\n"
        self._prefix, self._suffix = marked.split(b"\\u0000")

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        return {**self._envelope, "object": kind, "choices": choices, **more}

    def _choice(self, text: str | None, finish_reason: str | None) -> dict[str, Any]:
        if not self._chat:
            return {"index": 0, "text": text or "", "logprobs": None, "finish_reason": finish_reason}
        delta = {} if text is None else {"content": text}
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

    def role(self) -> bytes:
        """Return the first frame, which has the role and no token; empty for a completion."""
        if not self._chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return b"data: " + json_bytes(self._chunk([choice])) + b"\n\n"

    def token(self, word: str) -> bytes:
        """Return the frame of one token, a word that needs no escaping."""
        return self._prefix + word.encode() + self._suffix

    def finish(self, reason: str) -> bytes:
        """Return the frame that says why the answer ended."""
        return b"data: " + json_bytes(self._chunk([self._choice(None, reason)])) + b"\n\n"

    def usage(self, completion_tokens: int) -> bytes:
        """Return the frame with the server's own count."""
        body = self._chunk([], usage=self._usage(completion_tokens))
        return b"data: " + json_bytes(body) + b"\n\n"

    def error(self, message: str) -> bytes:
        """Return the frame of an error in a stream that began with 200."""
        body = {"error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}}
        return b"data: " + json_bytes(body) + b"\n\n"

    def whole(self, text: str, reason: str, completion_tokens: int) -> bytes:
        """Return the answer as one body, as a tool call or JSON of a schema if the request asks for it."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
        if self._tool is not None:
            name, arguments = self._tool
            call = {"id": "call-0", "type": "function", "function": {"name": name, "arguments": arguments}}
            choice["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
            choice["finish_reason"] = "tool_calls"
        elif self._schema is not None:
            choice["message"] = {"role": "assistant", "content": json.dumps(_instance_of(self._schema))}
            choice["finish_reason"] = "stop"
        elif self._chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        return json_bytes({**self._envelope, "choices": [choice], "usage": self._usage(completion_tokens)})

    def _usage(self, completion_tokens: int) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens,
        }


def embedding_answer(body: bytes, model: str) -> tuple[bytes, int]:
    """Return the answer to a request for embeddings, and the tokens of its text; raises BadRequest."""
    data = _json_object(body)
    text = data.get("input")
    if not isinstance(text, str):
        raise BadRequest("'input' must be a string", "input")
    if data.get("model") != model:
        raise BadRequest(f"The model `{data.get('model')}` does not exist.", "model")
    tokens = count_tokens(text)
    vector = [byte / 255 - 0.5 for byte in hashlib.blake2b(text.encode(), digest_size=8).digest()]
    answer = {
        "object": "list",
        "model": model,
        "data": [{"object": "embedding", "index": 0, "embedding": vector}],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return json_bytes(answer), tokens
