"""OpenAI-compatible completions without a chat template, and answers that are not streamed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rackgate.engines.openai import ChatStream, OpenAi, interpret_body
from rackgate.engines.protocol import json_bytes
from rackgate.engines.readers import BodyReader

if TYPE_CHECKING:
    from rackgate.engines.protocol import AnswerReader, ChatRequest

__all__ = ["COMPLETIONS", "OPENAI_WHOLE", "Completions", "WholeOpenAi"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completions:
    """The protocol: one prompt, a stream of `text`; earlier turns stand before the prompt."""

    def path(self, model: str) -> str:  # noqa: ARG002 - other protocols name the model in the path
        """Return the URL path to post to."""
        return "/v1/completions"

    def body(self, request: ChatRequest) -> bytes:
        """Return the JSON body: temperature 0, usage asked for."""
        body: dict[str, Any] = {
            "model": request.model,
            "prompt": request.whole_text,
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "stream": request.stream,
            "ignore_eos": True,
        }
        if request.stream:
            body["stream_options"] = {"include_usage": True}
        return json_bytes(body)

    def reader(self, *, streamed: bool = True) -> AnswerReader:
        """Return a reader for one answer."""
        return ChatStream() if streamed else BodyReader(interpret_body, warning="not streamed")


class WholeOpenAi(OpenAi):
    """Chat completions that come as one body: the first token is seen when the last one is there."""

    def body(self, request: ChatRequest) -> bytes:
        """Return the JSON body without `stream`."""
        asked = json.loads(OpenAi.body(self, request))
        asked.pop("stream_options", None)
        asked["stream"] = False
        return json_bytes(asked)

    def reader(self, *, streamed: bool = False) -> AnswerReader:
        """Return a reader for one answer; one that comes as a stream all the same is read as one."""
        return ChatStream() if streamed else BodyReader(interpret_body)


COMPLETIONS = Completions()
OPENAI_WHOLE = WholeOpenAi()
