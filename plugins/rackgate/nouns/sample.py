"""One request: its moments on the monotonic clock, its tokens, its one outcome, and the formulas.

Durations are differences of monotonic nanoseconds; wall time only labels. The names are those of
docs/metrics.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from rackgate.nouns.load import Origin


class Outcome(StrEnum):
    """How a request ended: exactly one of these."""

    OK = "ok"
    REFUSED = "refused"
    HTTP_ERROR = "http_error"
    CONNECT_ERROR = "connect_error"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    STREAM_ERROR = "stream_error"
    ABORTED = "aborted"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    DEGENERATE = "degenerate"
    WRONG = "wrong"
    MALFORMED = "malformed"
    DROPPED = "dropped"
    CANCELLED = "cancelled"


FAILED = frozenset(Outcome) - {Outcome.OK, Outcome.CANCELLED}
"""Outcomes that count as errors. CANCELLED is the load's own end: censored, counted, not an error."""


def traceparent_of(request_id: str) -> str:
    """Return the W3C `traceparent` that a request was sent with: version 00, sampled.

    The SHA-256 of the id gives the trace id (its first 16 bytes) and the span id (the 8 that follow), so
    that whoever has one of them in a log finds the other.
    """
    digest = hashlib.sha256(request_id.encode()).hexdigest()
    return f"00-{digest[:32]}-{digest[32:48]}-01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request. Moments are nanoseconds of CLOCK_MONOTONIC, None where they never came.

    `engine` is the entity that was called (`gateway` for the gateway), `served_by` the entity that
    answered, as far as it said so or is known. `sent_ns` is when the first byte that the request needs went
    to the kernel: the request's own on a kept connection, else that of the connection, which stood at
    `connected_ns`. `token_ns` holds the arrival of each token-bearing chunk; several chunks that came in
    one read share one arrival. `token_source` is `usage`, `timings` or `chunks`. `retry_after_s` is what a
    refusal asked for, rounded up to whole seconds.
    """

    request_id: str
    engine: str
    load: str
    label: str
    outcome: Outcome
    scheduled_ns: int
    warmup: bool = False
    look: int = 0
    served_by: str | None = None
    sent_ns: int | None = None
    first_byte_ns: int | None = None
    first_token_ns: int | None = None
    first_answer_ns: int | None = None
    last_token_ns: int | None = None
    done_ns: int | None = None
    token_ns: tuple[int, ...] = ()
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    token_source: str | None = None
    http_status: int | None = None
    finish_reason: str | None = None
    detail: str = ""
    text_digest: str = ""
    warnings: tuple[str, ...] = ()
    connected_ns: int | None = None
    retry_after_s: int | None = None

    @property
    def ok(self) -> bool:
        """True if the request counts as a success."""
        return self.outcome is Outcome.OK

    def origin_ns(self, origin: Origin) -> int | None:
        """The moment from which latency is counted."""
        return self.scheduled_ns if origin is Origin.SCHEDULED else self.sent_ns

    def _since(self, moment: int | None, origin: Origin) -> float | None:
        start = self.origin_ns(origin)
        return None if moment is None or start is None else (moment - start) / 1e6

    def ttft_ms(self, origin: Origin = Origin.SENT) -> float | None:
        """First token - origin, in ms; None without a token."""
        return self._since(self.first_token_ns, origin)

    def time_to_first_answer_ms(self, origin: Origin = Origin.SENT) -> float | None:
        """First non-empty content - origin, in ms; None if only reasoning came."""
        return self._since(self.first_answer_ns, origin)

    def e2e_ms(self, origin: Origin = Origin.SENT) -> float | None:
        """Done - origin, in ms; None unless the request is ok."""
        return self._since(self.done_ns, origin) if self.ok else None

    @property
    def tpot_ms(self) -> float | None:
        """(last token - first token) / (output tokens - 1), in ms.

        None below two tokens, when all tokens came in one chunk, or without a count of tokens.
        """
        if self.output_tokens is None or self.output_tokens < 2 or len(self.token_ns) < 2:
            return None
        return (self.token_ns[-1] - self.token_ns[0]) / 1e6 / (self.output_tokens - 1)

    @property
    def chunk_gaps_ms(self) -> tuple[float, ...]:
        """Gaps between token-bearing chunks, in ms."""
        return tuple(
            (later - earlier) / 1e6 for earlier, later in zip(self.token_ns, self.token_ns[1:], strict=False)
        )

    @property
    def tokens_per_chunk(self) -> float | None:
        """Output tokens / token-bearing chunks; chunk gaps are inter-token latency only at 1."""
        return self.output_tokens / len(self.token_ns) if self.output_tokens and self.token_ns else None

    @property
    def shared_chunks(self) -> int:
        """Token-bearing chunks that came in one read with another one: their gaps to it are not known."""
        shared = [later == earlier for earlier, later in zip(self.token_ns, self.token_ns[1:], strict=False)]
        return sum(before or after for before, after in zip((False, *shared), (*shared, False), strict=True))

    @property
    def traceparent(self) -> str:
        """The `traceparent` that it was sent with."""
        return traceparent_of(self.request_id)

    @property
    def connect_ms(self) -> float | None:
        """Time until the connection that it waited for stood, in ms; None on a kept connection."""
        if self.connected_ns is None or self.sent_ns is None:
            return None
        return (self.connected_ns - self.sent_ns) / 1e6

    @property
    def schedule_lag_ms(self) -> float | None:
        """Sent - scheduled, in ms: the load generator's own fault."""
        return None if self.sent_ns is None else (self.sent_ns - self.scheduled_ns) / 1e6
