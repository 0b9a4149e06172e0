"""OpenAI-compatible embeddings: an answer is one vector of finite numbers, which counts as its token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rackgate.engines.protocols.answer import AnswerSoFar, Unreadable
from rackgate.engines.protocols.body_readers import BodyReader
from rackgate.engines.protocols.openai import error_of, frame_of
from rackgate.engines.protocols.protocol import JSON, AnswerReader, ChatRequest, Dialect, json_bytes


def interpret(reading: AnswerSoFar, name: str, data: bytes) -> None:  # noqa: ARG001 - a body has no name
    """Read a whole body. Raises `ValueError` if it holds no vector."""
    frame = frame_of(data)
    reading.error = error_of(frame)
    if reading.error is not None:
        return
    rows = frame.get("data")
    vector = (
        rows[0].get("embedding") if isinstance(rows, list) and rows and isinstance(rows[0], dict) else None
    )
    if not isinstance(vector, list) or not vector or not all(_finite(value) for value in vector):
        raise Unreadable("no vector of finite numbers")
    reading.token("")
    reading.first_answer_ns = reading.t_ns
    usage = frame.get("usage")
    if isinstance(usage, dict) and isinstance(usage.get("prompt_tokens"), int):
        reading.prompt_tokens = usage["prompt_tokens"]


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """The protocol: one text in, one vector out; `max_tokens` has no meaning."""

    @property
    def dialect(self) -> Dialect:
        """One body."""
        return Dialect(accept=JSON)

    def path(self, model: str) -> str:  # noqa: ARG002 - other protocols name the model in the path
        """Return the URL path to post to."""
        return "/v1/embeddings"

    def body(self, request: ChatRequest) -> bytes:
        """Return the JSON body."""
        body = {"model": request.model, "input": request.whole_text}
        return json_bytes(body)

    def reader(self, *, streamed: bool = False) -> AnswerReader:  # noqa: ARG002 - there is no stream of it
        """Return a reader for one answer."""
        return BodyReader(interpret)


EMBEDDINGS = Embeddings()
