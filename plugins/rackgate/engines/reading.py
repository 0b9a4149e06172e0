"""One answer while it arrives: what came, when, and what it amounts to in the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from rackgate.engines.protocol import Answer, Ending, ToolCall
from rackgate.engines.sanity import degenerate
from rackgate.engines.sse import EventTooLong, SseParser
from rackgate.sample import Outcome

__all__ = ["BodyReader", "Interpret", "Reading", "StreamReader", "Unreadable"]

MAX_BODY_BYTES = 32 * 1024 * 1024

FINISHED = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter"})
"""Finish reasons of a request that ran to its end; any other one is a failure."""

_ENDED_EARLY = {
    Ending.LOST: (Outcome.TRUNCATED, "connection lost"),
    Ending.TIMEOUT: (Outcome.TIMEOUT, "limit reached"),
    Ending.STALLED: (Outcome.STALLED, "token stall"),
    Ending.CANCELLED: (Outcome.CANCELLED, "cancelled by the load"),
    Ending.UNCONNECTED: (Outcome.CONNECT_ERROR, "no connection"),
}


class Reading:
    """Collects tokens, channels, counts and errors of one answer; `conclude` makes the `Answer`."""

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
        self.token_ns: list[int] = []
        self.first_token_chunk: int | None = None
        self.first_answer_ns: int | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.usage_source: str | None = None
        self.predicted_n: int | None = None
        self.counted: list[int | None] = []
        self.server_times_s: dict[str, float] = {}
        self.error: tuple[str | None, int | str | None, str] | None = None
        self.malformed = ""
        self.warnings: dict[str, None] = {}

    def token(self, content: str) -> None:
        """Count a token-bearing event; `content` is its share of the answer, which may be empty."""
        if not self.token_ns:
            self.first_token_chunk = self.events - 1
        self.token_ns.append(self.t_ns)
        self.counted.append(None)
        if content:
            self.text.append(content)
            if self.first_answer_ns is None:
                self.first_answer_ns = self.t_ns

    @property
    def only_text(self) -> bool:
        """True if nothing but text has come: no reasoning, tool, count, end or fault."""
        more = self.reasoning or self.tool_calls or self.server_times_s or self.malformed or self.done_seen
        ends = self.finish_reason is not None or self.error is not None or self.usage_source is not None
        return bool(self.text) and not more and not ends and self.prompt_tokens is None

    def counted_along(self, completion_tokens: int) -> None:
        """Note the server's running count at the latest token-bearing event."""
        if self.counted and self.counted[-1] is None:
            self.counted[-1] = completion_tokens

    def conclude(
        self, t_ns: int, ending: Ending, detail: str, *, terminal_due: bool, comments: int = 0
    ) -> Answer:
        """Return the answer with its one outcome."""
        complete = self.done_seen or self.finish_reason is not None
        outcome, why = self._outcome(ending, detail, complete=complete, terminal_due=terminal_due)
        done = self.signal_ns if self.done_seen or (complete and ending is not Ending.COMPLETE) else t_ns
        kind, code, message = self.error or (None, None, "")
        return Answer(
            outcome=outcome,
            detail=why,
            text="".join(self.text),
            reasoning="".join(self.reasoning),
            tool_calls=tuple(ToolCall(name=name, arguments=text) for name, text in self.tool_calls),
            finish_reason=self.finish_reason,
            done_seen=self.done_seen,
            token_ns=tuple(self.token_ns),
            first_token_chunk=self.first_token_chunk,
            first_answer_ns=self.first_answer_ns,
            done_ns=done,
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
            warnings=self._conformance(outcome, ending, complete=complete, terminal_due=terminal_due),
        )

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
            why = degenerate("".join(channel))
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
        counts = [count for count in self.counted if count is not None]
        if len(counts) != len(self.token_ns) or not counts:
            return ()
        return tuple(after - before for before, after in zip([0, *counts], counts, strict=False))


_SPECIAL = re.compile(rb'["\\\x00-\x1f]')
_CONTENT = b'"content":'


def _around(data: bytes, text: str) -> tuple[bytes, bytes] | None:
    """Return what stands around the text of a one-event read, None unless that is beyond doubt.

    The event has to be one line, and its text has to stand in it once, as the only content.
    """
    if not data.startswith(b"data: {") or not data.endswith(b"}\n\n") or data.count(b"\n") != 2:
        return None
    said = text.encode("utf-8", "surrogatepass")
    if b"\r" in data or _SPECIAL.search(said) or data.count(_CONTENT) != 1 or b'"usage":{' in data:
        return None
    place = data.index(_CONTENT) + len(_CONTENT)
    place += data[place : place + 1] == b" "
    begin = place + 1
    if data[place:begin] != b'"' or data[begin : begin + len(said) + 1] != said + b'"':
        return None
    return data[:begin], data[begin + len(said) :]


class Unreadable(ValueError):
    """An event or a body is not what the protocol says."""


Interpret: TypeAlias = Callable[[Reading, str, bytes], None]
"""Reads one event (name, data) of a protocol; raises `ValueError` for one that cannot be understood."""


class StreamReader:
    """Reads a streamed answer: events by `interpret`, arrivals from the caller.

    `terminal_due` says whether the protocol has a terminal signal, without which the answer is
    truncated.
    """

    def __init__(self, interpret: Interpret, *, terminal_due: bool = True) -> None:
        self._interpret = interpret
        self._terminal_due = terminal_due
        self._parser = SseParser()
        self._like: tuple[bytes, bytes] | None = None
        self.reading = Reading()

    @property
    def last_token_ns(self) -> int | None:
        """Arrival of the latest token-bearing chunk."""
        tokens = self.reading.token_ns
        return tokens[-1] if tokens else None

    @property
    def done_seen(self) -> bool:
        """True once the terminal signal came."""
        return self.reading.done_seen

    def feed(self, t_ns: int, data: bytes) -> None:
        """Take one read of the body with its arrival."""
        reading = self.reading
        reading.t_ns = t_ns
        like = self._like
        if like is not None and data.startswith(like[0]) and data.endswith(like[1]):
            said = data[len(like[0]) : -len(like[1])]
            if self._same_but_for(said):
                return
        try:
            events = self._parser.feed(data)
        except EventTooLong as error:
            reading.malformed = reading.malformed or str(error)
            return
        for name, payload in events:
            self._event(name, payload)
        if len(events) == 1 and reading.only_text and reading.token_ns[-1] == t_ns:
            self._like = _around(data, reading.text[-1]) if self._parser.between_events else None

    def _same_but_for(self, said: bytes) -> bool:
        """Take an event that differs from the one before it in its text alone, without parsing it again.

        Between the same bytes a text without quote, escape or control byte is the same JSON with another
        string in it, so this reads what the parser would have read.
        """
        reading = self.reading
        if not said or reading.done_seen or _SPECIAL.search(said) or not self._parser.between_events:
            return False
        try:
            text = said.decode()
        except UnicodeDecodeError:
            return False
        reading.events += 1
        reading.token(text)
        return True

    def close(self, t_ns: int, ending: Ending, detail: str = "") -> Answer:
        """Return the answer; `t_ns` is when the exchange ended and `ending` how."""
        reading = self.reading
        malformed = reading.malformed
        for name, payload in self._parser.close():
            self._event(name, payload)
        if reading.malformed and not malformed:  # the body ended inside an event: cut, not garbage
            reading.malformed = ""
            reading.warnings["the last event is cut"] = None
        if ending is Ending.COMPLETE and not reading.events and self._parser.ignored:
            reading.malformed = "a 200 that is no event stream"
        return reading.conclude(
            t_ns, ending, detail, terminal_due=self._terminal_due, comments=self._parser.comments
        )

    def _event(self, name: str, payload: bytes) -> None:
        self.reading.events += 1
        try:
            self._interpret(self.reading, name, payload)
        except (ValueError, RecursionError) as error:
            if not self.reading.malformed:
                self.reading.malformed = f"event {self.reading.events}: {error}"


class BodyReader:
    """Reads an answer that comes as one body; its tokens all arrive with the last read."""

    def __init__(self, interpret: Interpret, *, warning: str = "") -> None:
        self._interpret = interpret
        self._parts: list[bytes] = []
        self._size = 0
        self.reading = Reading()
        if warning:
            self.reading.warnings[warning] = None

    @property
    def last_token_ns(self) -> int | None:
        """None: nothing is known before the body is whole."""
        return None

    @property
    def done_seen(self) -> bool:
        """False: only the end of the body says so."""
        return False

    def feed(self, t_ns: int, data: bytes) -> None:
        """Take one read of the body with its arrival."""
        self.reading.t_ns = t_ns
        self._size += len(data)
        if self._size <= MAX_BODY_BYTES:
            self._parts.append(data)

    def close(self, t_ns: int, ending: Ending, detail: str = "") -> Answer:
        """Return the answer; `t_ns` is when the exchange ended and `ending` how."""
        reading = self.reading
        reading.events = 1
        if self._size > MAX_BODY_BYTES:
            reading.malformed = f"a body of more than {MAX_BODY_BYTES} bytes"
        elif ending is Ending.COMPLETE:
            try:
                self._interpret(reading, "", b"".join(self._parts))
            except (ValueError, RecursionError) as error:
                reading.malformed = f"body: {error}"
        return reading.conclude(t_ns, ending, detail, terminal_due=False)
