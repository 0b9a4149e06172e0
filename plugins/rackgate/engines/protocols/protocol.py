"""What speaking with an engine means: a request as bytes, a reader of its answer, and the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from rackgate.engines.protocols.answer import Answer, AnswerEnd, AnswerSoFar, Ending

STREAM = "text/event-stream"
JSON = "application/json"


class AnswerReader(Protocol):
    """Interprets one response body while it arrives."""

    reading: AnswerSoFar
    """What was read so far."""

    @property
    def last_token_ns(self) -> int | None:
        """Arrival of the latest token-bearing chunk."""

    @property
    def done_seen(self) -> bool:
        """True once nothing more is due."""

    def feed(self, t_ns: int, data: bytes) -> None:
        """Take one read of the body with its arrival."""

    def take(self, reads: Sequence[tuple[int, bytes]]) -> None:
        """Take several reads of the body, each with its arrival."""

    def end(self, t_ns: int, ending: Ending, detail: str = "") -> AnswerEnd:
        """Return how the answer ended, without making it; `reading` then holds what it is made of."""

    def close(self, t_ns: int, ending: Ending, detail: str = "") -> Answer:
        """Return the answer; `t_ns` is when the exchange ended and `ending` how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What is asked: `prompt` is one user message, `max_tokens` the output that is due.

    `history` holds what was said before, as pairs of a user's and the assistant's words.
    """

    model: str
    prompt: str
    max_tokens: int
    stream: bool = True
    history: tuple[tuple[str, str], ...] = ()

    @property
    def whole_text(self) -> str:
        """All that was said and is asked, for a protocol without turns."""
        return "\n".join([*(text for exchange in self.history for text in exchange), self.prompt])


def json_bytes(body: Mapping[str, object]) -> bytes:
    """Return a JSON body as the protocols send it: UTF-8, without spaces."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What else is to be known of a protocol.

    `accept` is the media type of its answers; `family` is the API that it belongs to, `openai` or `triton`:
    where models and health are asked for; `chats` says that what is served can be asked for a chat too.
    """

    accept: str = STREAM
    family: str = "openai"
    chats: bool = False


class ChatProtocol(Protocol):
    """A way to ask an engine for a completion: one module, named in `PROTOCOLS`."""

    @property
    def dialect(self) -> Dialect:
        """What else is to be known of it."""

    def path(self, model: str) -> str:
        """Return the URL path to post to."""

    def body(self, request: ChatRequest) -> bytes:
        """Return the JSON body."""

    def reader(self, *, streamed: bool = True) -> AnswerReader:
        """Return a reader for one answer."""


PROTOCOLS = {
    "kserve": "rackgate.engines.protocols.kserve:KSERVE",
    "openai": "rackgate.engines.protocols.openai:OPENAI",
    "openai_completions": "rackgate.engines.protocols.completions:COMPLETIONS",
    "openai_completions_whole": "rackgate.engines.protocols.completions:COMPLETIONS_WHOLE",
    "openai_embeddings": "rackgate.engines.protocols.embeddings:EMBEDDINGS",
    "openai_plain": "rackgate.engines.protocols.openai:OPENAI_PLAIN",
    "openai_whole": "rackgate.engines.protocols.completions:OPENAI_WHOLE",
    "triton": "rackgate.engines.protocols.triton:TRITON",
}
"""Where each protocol lives, by the name that a target uses; any other one is named as it stands here."""


def protocol_named(name: str) -> ChatProtocol:
    """Return a protocol by its name, or by `MODULE:OBJECT` one that does not ship.

    Raises `ValueError` for an unknown name, and for an object that is no protocol.
    """
    module, found, attribute = PROTOCOLS.get(name, name).partition(":")
    if not found:
        known = ", ".join(sorted(PROTOCOLS))
        raise ValueError(f"unknown protocol {name!r}; known: {known}, or MODULE:OBJECT")
    try:
        protocol = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"protocol {name!r} cannot be had: {error}") from None
    missing = [member for member in ("path", "body", "reader", "dialect") if not hasattr(protocol, member)]
    if missing:
        raise ValueError(f"{name!r} is no protocol: it has no {', '.join(missing)}")
    return cast("ChatProtocol", protocol)
