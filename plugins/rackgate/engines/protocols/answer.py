"""One answer while it arrives: what came, when, and what it amounts to in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from rackgate.engines.protocols.sanity import degenerate
from rackgate.nouns.sample import Outcome

FINISHED = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter"})
"""Finish reasons of a request that ran to its end; any other one is a failure."""


class Ending(StrEnum):
    """How the exchange ended, as HTTP and the limits see it."""

    COMPLETE = "complete"
    LOST = "lost"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    CANCELLED = "cancelled"
    MALFORMED = "malformed"
    UNCONNECTED = "unconnected"


_ENDED_EARLY = {
    Ending.LOST: (Outcome.TRUNCATED, "connection lost"),
    Ending.TIMEOUT: (Outcome.TIMEOUT, "limit reached"),
    Ending.STALLED: (Outcome.STALLED, "token stall"),
    Ending.CANCELLED: (Outcome.CANCELLED, "cancelled by the load"),
    Ending.UNCONNECTED: (Outcome.CONNECT_ERROR, "no connection"),
}


class AnswerEnd(NamedTuple):
    """How an answer ended: its one outcome and why, its last moment, and what was not as it should be."""

    outcome: Outcome
    detail: str
    done_ns: int | None
    warnings: tuple[str, ...] = ()


class AnswerSoFar:
    """Collects tokens, channels, counts and errors of one answer."""

    __slots__ = (
        "completion_tokens", "counted", "done_seen", "error", "events", "finish_reason", "first_answer_ns",
        "first_token_chunk", "malformed", "predicted_n", "prompt_tokens", "reasoning", "server_times_s",
        "signal_ns", "system_fingerprint", "t_ns", "text", "token_ns", "tool_call_ids", "tool_calls",
        "usage_source", "warnings",
    )  # fmt: skip

    def __init__(self) -> None:
        self.t_ns = 0
        self.events = 0
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.tool_calls: list[list[str]] = []
        self.tool_call_ids: list[str] = []
        self.finish_reason: str | None = None
        self.done_seen = False
        self.signal_ns: int | None = None
        self.system_fingerprint: str | None = None
        self.token_ns: list[int] = []
        self.first_token_chunk: int | None = None
        self.first_answer_ns: int | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.usage_source: str | None = None
        self.predicted_n: int | None = None
        self.counted: dict[int, int] = {}
        self.server_times_s: dict[str, float] = {}
        self.error: tuple[str | None, int | str | None, str] | None = None
        self.malformed = ""
        self.warnings: dict[str, None] = {}

    def token(self, content: str) -> None:
        """Count a token-bearing event; `content` is its share of the answer, which may be empty."""
        if not self.token_ns:
            self.first_token_chunk = self.events - 1
        self.token_ns.append(self.t_ns)
        if content:
            self.text.append(content)
            if self.first_answer_ns is None:
                self.first_answer_ns = self.t_ns

    def finish(self, reason: str) -> None:
        """Note why the model ended; it is the terminal signal until `[DONE]` comes."""
        self.finish_reason = reason
        if self.signal_ns is None or not self.done_seen:
            self.signal_ns = self.t_ns

    def done(self) -> None:
        """Note the terminal signal."""
        if not self.done_seen:
            self.done_seen = True
            self.signal_ns = self.t_ns

    def usage(self, prompt_tokens: int | None, completion_tokens: int | None) -> None:
        """Note the server's own counts; the last ones stand."""
        if prompt_tokens is not None:
            self.prompt_tokens = prompt_tokens
        if completion_tokens is not None:
            self.completion_tokens = completion_tokens
            self.usage_source = "usage"

    def counted_along(self, completion_tokens: int) -> None:
        """Note the server's running count at the latest token-bearing event."""
        if self.token_ns:
            self.counted.setdefault(len(self.token_ns) - 1, completion_tokens)

    def judge(self, t_ns: int, ending: Ending, detail: str, *, terminal_due: bool) -> AnswerEnd:
        """Return how the answer ended; `t_ns` is when the exchange did."""
        complete = self.done_seen or self.finish_reason is not None
        outcome, why = self._outcome(ending, detail, complete=complete, terminal_due=terminal_due)
        return AnswerEnd(
            outcome,
            why,
            self.signal_ns if self.done_seen or (complete and ending is not Ending.COMPLETE) else t_ns,
            self._conformance(outcome, ending, complete=complete, terminal_due=terminal_due),
        )

    def answer(self, ended: AnswerEnd, *, comments: int = 0) -> Answer:
        """Return the answer of a reading that has ended."""
        kind, code, message = self.error or (None, None, "")
        return Answer(
            outcome=ended.outcome,
            detail=ended.detail,
            text="".join(self.text),
            reasoning="".join(self.reasoning),
            tool_calls=tuple(ToolCall(name=name, arguments=text) for name, text in self.tool_calls),
            finish_reason=self.finish_reason,
            done_seen=self.done_seen,
            token_ns=tuple(self.token_ns),
            first_token_chunk=self.first_token_chunk,
            first_answer_ns=self.first_answer_ns,
            done_ns=ended.done_ns,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            usage_source=self.usage_source,
            server_predicted_n=self.predicted_n,
            chunk_tokens=self._chunk_tokens(),
            server_times_s=self.server_times_s,
            comment_frames=comments,
            error_type=kind,
            error_code=code,
            error_message=message,
            warnings=ended.warnings,
        )

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

    def _outcome(
        self, ending: Ending, detail: str, *, complete: bool, terminal_due: bool
    ) -> tuple[Outcome, str]:
        if self.error is not None:
            return Outcome.STREAM_ERROR, self.error[2]
        if self.malformed or ending is Ending.MALFORMED:
            return Outcome.MALFORMED, self.malformed or detail
        if ending in _ENDED_EARLY and not complete:
            outcome, why = _ENDED_EARLY[ending]
            return outcome, detail or why
        if terminal_due and not complete:
            return Outcome.TRUNCATED, "the body ended without a terminal signal"
        if self.finish_reason is not None and self.finish_reason not in FINISHED:
            return Outcome.ABORTED, f"finish_reason {self.finish_reason!r}"
        return self._delivered()

    def _delivered(self) -> tuple[Outcome, str]:
        if not self.token_ns:
            if self.completion_tokens:
                return Outcome.EMPTY, "tokens generated but nothing delivered"
            return Outcome.EMPTY, "no token"
        for channel in (self.text, self.reasoning):
            why = degenerate("".join(channel)) if channel else ""
            if why:
                return Outcome.DEGENERATE, why
        return Outcome.OK, ""

    def _conformance(
        self, outcome: Outcome, ending: Ending, *, complete: bool, terminal_due: bool
    ) -> tuple[str, ...]:
        if terminal_due and complete:
            if not self.done_seen:
                self.warnings["no [DONE]"] = None
            if self.finish_reason is None:
                self.warnings["finish_reason missing"] = None
            if ending is not Ending.COMPLETE:
                self.warnings[f"{ending} after the terminal signal"] = None
        if self.finish_reason == "content_filter":
            self.warnings["finish_reason content_filter"] = None
        if outcome is Outcome.OK and self.first_answer_ns is None and not self.tool_calls:
            self.warnings["answer text empty"] = None
        return tuple(self.warnings)

    def _chunk_tokens(self) -> tuple[int, ...]:
        if len(self.counted) != len(self.token_ns) or not self.counted:
            return ()
        counts = list(self.counted.values())
        return tuple(after - before for before, after in zip([0, *counts], counts, strict=False))


class Unreadable(ValueError):
    """An event or a body is not what the protocol says."""


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
