"""OpenAI-compatible completions without a chat template, and answers that are not streamed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rackgate.engines.protocols.body_readers import BodyReader
from rackgate.engines.protocols.openai import ChatStream, OpenAi, interpret_body
from rackgate.engines.protocols.protocol import JSON, STREAM, AnswerReader, ChatRequest, Dialect, json_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Completions:
    """The protocol: one prompt; a stream of `text`, or one body. Earlier turns stand before the prompt."""

    whole: bool = False

    @property
    def dialect(self) -> Dialect:
        """A stream of events, or one body."""
        return Dialect(accept=JSON if self.whole else STREAM)

    def path(self, model: str) -> str:  # noqa: ARG002 - other protocols name the model in the path
        """Return the URL path to post to."""
        return "/v1/completions"

    def body(self, request: ChatRequest) -> bytes:
        """Return the JSON body: temperature 0, usage asked for."""
        streamed = request.stream and not self.whole
        body: dict[str, Any] = {
            "model": request.model,
            "prompt": request.whole_text,
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "stream": streamed,
            "ignore_eos": True,
        }
        if streamed:
            body["stream_options"] = {"include_usage": True}
        return json_bytes(body)

    def reader(self, *, streamed: bool | None = None) -> AnswerReader:
        """Return a reader for one answer, of the kind that is due if nobody says which kind came."""
        if streamed if streamed is not None else not self.whole:
            return ChatStream()
        return BodyReader(interpret_body, warning="" if self.whole else "not streamed")


class WholeOpenAi(OpenAi):
    """Chat completions that come as one body: the first token is seen when the last one is there."""

    @property
    def dialect(self) -> Dialect:
        """One body; what chats."""
        return Dialect(accept=JSON, chats=True)

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
COMPLETIONS_WHOLE = Completions(whole=True)
OPENAI_WHOLE = WholeOpenAi()
