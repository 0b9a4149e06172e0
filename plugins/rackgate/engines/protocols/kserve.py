"""KServe v2 `infer`: a text tensor in, a text tensor out, in one body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rackgate.engines.protocols.answer import AnswerSoFar, Unreadable
from rackgate.engines.protocols.body_readers import BodyReader
from rackgate.engines.protocols.openai import error_of, frame_of
from rackgate.engines.protocols.protocol import JSON, AnswerReader, ChatRequest, Dialect, json_bytes


def interpret(reading: AnswerSoFar, name: str, data: bytes) -> None:  # noqa: ARG001 - a body has no name
    """Read a whole body. Raises `ValueError` if it holds no output."""
    frame = frame_of(data)
    reading.error = error_of(frame)
    if reading.error is not None:
        return
    outputs = frame.get("outputs")
    if not isinstance(outputs, list):
        raise Unreadable("a 200 without outputs")
    texts = [
        str(part)
        for output in outputs
        if isinstance(output, dict) and output.get("datatype") == "BYTES"
        for part in output.get("data") or ()
    ]
    if "".join(texts):
        reading.token("".join(texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class KServe:
    """The protocol, with the tensor names of Triton's LLM back ends: text_input, max_tokens, text_output."""

    @property
    def dialect(self) -> Dialect:
        """One body."""
        return Dialect(accept=JSON, family="triton")

    def path(self, model: str) -> str:
        """Return the URL path to post to."""
        return f"/v2/models/{quote(model, safe='')}/infer"

    def body(self, request: ChatRequest) -> bytes:
        """Return the JSON body."""
        inputs: list[dict[str, Any]] = [
            {
                "name": "text_input",
                "shape": [1, 1],
                "datatype": "BYTES",
                "data": [request.whole_text],
            },
            {"name": "max_tokens", "shape": [1, 1], "datatype": "INT32", "data": [request.max_tokens]},
        ]
        return json_bytes({"inputs": inputs})

    def reader(self, *, streamed: bool = False) -> AnswerReader:  # noqa: ARG002 - infer does not stream
        """Return a reader for one answer."""
        return BodyReader(interpret)


KSERVE = KServe()
