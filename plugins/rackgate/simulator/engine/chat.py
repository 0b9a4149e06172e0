"""An OpenAI request as the simulated engine understands it, and the frames of its answer."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from rackgate.simulator.engine.shaped_answers import instance_of, wanted_schema, wanted_tool
from rackgate.simulator.engine.words import count_tokens
from rackgate.simulator.http_server import json_bytes

DONE = b"data: [DONE]\n\n"


class BadRequest(ValueError):
    """The client's request cannot be served; `param` names the field at fault."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """`max_tokens` None means until the model stops by itself.

    `schema` is the shape that the answer must have, `tool` name and arguments of the tool to call.
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
    """Return the request; raises BadRequest."""
    try:
        data = json.loads(body)
    except ValueError as problem:
        raise BadRequest(f"the body is not JSON: {problem}") from None
    if not isinstance(data, dict):
        raise BadRequest("the body is not a JSON object")
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
        schema=wanted_schema(data) if chat else None,
        tool=wanted_tool(data) if chat else None,
    )


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


class Frames:
    """Makes the frames of one answer; what stays the same is encoded once, since this is per token."""

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
        """Return the first frame: the role and no token; nothing outside of chat."""
        if not self._chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return b"data: " + json_bytes(self._chunk([choice])) + b"\n\n"

    def token(self, word: str) -> bytes:
        """Return the frame of one token; words need no escaping."""
        return self._prefix + word.encode() + self._suffix

    def finish(self, reason: str) -> bytes:
        """Return the frame that says why the answer ended."""
        return b"data: " + json_bytes(self._chunk([self._choice(None, reason)])) + b"\n\n"

    def usage(self, completion_tokens: int) -> bytes:
        """Return the frame with the server's own count."""
        body = self._chunk([], usage=self._usage(completion_tokens))
        return b"data: " + json_bytes(body) + b"\n\n"

    def error(self, message: str) -> bytes:
        """Return an error inside a stream that began with 200."""
        body = {"error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}}
        return b"data: " + json_bytes(body) + b"\n\n"

    def whole(self, text: str, reason: str, completion_tokens: int) -> bytes:
        """Return the answer in one piece, in the shape that was asked for."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
        if self._tool is not None:
            name, arguments = self._tool
            call = {"id": "call-0", "type": "function", "function": {"name": name, "arguments": arguments}}
            choice["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
            choice["finish_reason"] = "tool_calls"
        elif self._schema is not None:
            choice["message"] = {"role": "assistant", "content": json.dumps(instance_of(self._schema))}
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
