"""What speaking with an engine means: a request as bytes, a reader of its answer, and the answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rackgate.engines.protocols.answer import AnswerEnd, AnswerSoFar
    from rackgate.nouns.sample import Outcome


STREAM = "text/event-stream"
JSON = "application/json"


class Ending(StrEnum):
    """How the exchange ended, as HTTP and the limits see it."""

    COMPLETE = "complete"
    LOST = "lost"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    CANCELLED = "cancelled"
    MALFORMED = "malformed"
    UNCONNECTED = "unconnected"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that the model asked for; `arguments` as it was written, usually JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one exchange gave. Moments are monotonic nanoseconds, None where they never came.

    `completion_tokens` and `prompt_tokens` are the server's own counts. `chunk_tokens` holds the tokens
    of each token-bearing chunk where the server counts along, else it is empty. `first_token_chunk` is
    the index of the first token-bearing event among all events. `server_times_s` are the engine's own
    times; they never replace ours.
    """

    outcome: Outcome
    detail: str = ""
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    done_seen: bool = False
    token_ns: tuple[int, ...] = ()
    first_token_chunk: int | None = None
    first_answer_ns: int | None = None
    done_ns: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    usage_source: str | None = None
    server_predicted_n: int | None = None
    chunk_tokens: tuple[int, ...] = ()
    server_times_s: Mapping[str, float] = field(default_factory=dict)
    comment_frames: int = 0
    error_type: str | None = None
    error_code: int | str | None = None
    error_message: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """True if a terminal signal came."""
        return self.done_seen or self.finish_reason is not None

    @property
    def output_tokens(self) -> int | None:
        """The server's count, else the number of token-bearing chunks; `token_source` says which."""
        if self.completion_tokens is not None:
            return self.completion_tokens
        return len(self.token_ns) or None

    @property
    def token_source(self) -> str | None:
        """`usage`, `timings` or `chunks`; None without any token."""
        return self.usage_source or ("chunks" if self.token_ns else None)

    @property
    def tpot_excluding_first_chunk_ms(self) -> float | None:
        """(last token - first token) / (output tokens - tokens of the first chunk), in ms.

        Stands beside `tpot_ms` where chunks carry several tokens; None where the server does not count
        along or all tokens came in one chunk.
        """
        if not self.chunk_tokens or self.completion_tokens is None:
            return None
        later = self.completion_tokens - self.chunk_tokens[0]
        return (self.token_ns[-1] - self.token_ns[0]) / 1e6 / later if later > 0 else None


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
