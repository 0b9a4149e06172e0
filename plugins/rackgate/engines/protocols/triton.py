"""Triton's generate_stream: pieces of `text_output`, no terminal signal, errors as strings in a 200."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rackgate.engines.protocols.answer import AnswerSoFar
from rackgate.engines.protocols.body_readers import BodyReader, StreamReader
from rackgate.engines.protocols.learned_events import Learned
from rackgate.engines.protocols.openai import error_of, frame_of
from rackgate.engines.protocols.protocol import AnswerReader, ChatRequest, Dialect, json_bytes


def interpret(reading: AnswerSoFar, name: str, data: bytes) -> None:  # noqa: ARG001 - Triton names no events
    """Read one event. Raises `ValueError` if it is no JSON object."""
    frame = frame_of(data)
    error = error_of(frame)
    if error is not None:
        reading.error = reading.error or error
    output = frame.get("text_output")
    if isinstance(output, list):
        output = "".join(str(part) for part in output)
    if isinstance(output, str) and output:
        reading.token(output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Triton:
    """The protocol of Triton's generate extension."""

    @property
    def dialect(self) -> Dialect:
        """A stream of events."""
        return Dialect(family="triton")

    def path(self, model: str) -> str:
        """Return the URL path to post to."""
        return f"/v2/models/{quote(model, safe='')}/generate_stream"

    def body(self, request: ChatRequest) -> bytes:
        """Return the JSON body: temperature 0."""
        body: dict[str, Any] = {
            "text_input": request.whole_text,
            "max_tokens": request.max_tokens,
            "stream": request.stream,
            "temperature": 0,
        }
        return json_bytes(body)

    def reader(self, *, streamed: bool = True) -> AnswerReader:
        """Return a reader for one answer."""
        return (
            StreamReader(interpret, terminal_due=False, learned=_LEARNED)
            if streamed
            else BodyReader(interpret, warning="not streamed")
        )


TRITON = Triton()
_LEARNED = Learned(interpret)
