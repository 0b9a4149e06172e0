"""One request of a load on its way: its moments, its limits, and the sample it becomes."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from time import perf_counter_ns
from typing import TYPE_CHECKING

from rackgate.engines.openai import error_of
from rackgate.engines.protocol import Answer, Ending
from rackgate.sample import Outcome, Sample

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from rackgate.engines.protocol import AnswerReader, ChatProtocol
    from rackgate.load import Limits
    from rackgate.loadgen.plan import Endpoint
    from rackgate.loadgen.transport import Finish, Transport

__all__ = ["MAX_RESPONSE_BYTES", "Attempt", "burst", "overdue"]

AFTER_DONE_NS = 1_000_000_000
BURST_GAP_NS = 200_000
BURST_CHUNKS = 4
BURST_SIZE = 8
REFUSALS = frozenset({429, 503})
MAX_RESPONSE_BYTES = 64 << 20
"""A server that never stops sending must not fill the memory."""

_ERROR_BODY_BYTES = 65536
_LOOK_AFTER_S = 0.006
"""How long after a limit it is looked at: what had come by then has been parsed (http1.PARSE_WITHIN_S)."""

_DETAIL_CHARACTERS = 240


def overdue(
    limits: Limits, sent_ns: int, last_token_ns: int | None, *, done: bool = False
) -> tuple[int, Ending, str]:
    """Return when a sent request is given up if nothing more comes, how it then ends, and why.

    Only tokens count: keep-alives and other frames move no limit.
    """
    total_ns = sent_ns + round(limits.total_s * 1e9)
    if done and last_token_ns is not None:
        return last_token_ns + AFTER_DONE_NS, Ending.COMPLETE, ""
    if last_token_ns is None:
        moment, ending, detail = (
            sent_ns + round(limits.first_token_s * 1e9),
            Ending.TIMEOUT,
            f"no token within {limits.first_token_s:g} s",
        )
    else:
        moment, ending, detail = (
            last_token_ns + round(limits.stall_s * 1e9),
            Ending.STALLED,
            f"token stall: none for {limits.stall_s:g} s",
        )
    if total_ns <= moment:
        return total_ns, Ending.TIMEOUT, f"not done within {limits.total_s:g} s"
    return moment, ending, detail


def burst(token_ns: tuple[int, ...]) -> bool:
    """Return whether the chunks came faster than an engine makes them: a hop buffered the stream.

    True if they arrived all at once (at least 4), or in clumps of more than 8 on average; smaller clumps
    may be one step of speculative decoding.
    """
    if len(token_ns) < BURST_CHUNKS:
        return False
    clumps = 1 + sum(later - earlier >= BURST_GAP_NS for earlier, later in pairwise(token_ns))
    return clumps == 1 or len(token_ns) / clumps > BURST_SIZE


class Attempt:
    """A request that was started; the transport's sink."""

    __slots__ = (
        "_abort", "_body_bytes", "_ended", "_endpoint", "_error_body", "_finish", "_first_byte_ns",
        "_limits", "_location", "_loop", "_protocol", "_reader", "_retry_after", "_served_by", "_status",
        "_timer", "_warnings", "request_id", "scheduled_ns", "sent_ns",
    )  # fmt: skip

    def __init__(
        self,
        endpoint: Endpoint,
        protocol: ChatProtocol,
        limits: Limits,
        *,
        request_id: str,
        scheduled_ns: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._endpoint = endpoint
        self._protocol = protocol
        self._limits = limits
        self._loop = loop
        self._abort: Callable[[Ending, str], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reader: AnswerReader | None = None
        self._status: int | None = None
        self._first_byte_ns: int | None = None
        self._served_by: str | None = None
        self._retry_after = ""
        self._error_body = b""
        self._body_bytes = 0
        self._location = ""
        self._warnings: list[str] = []
        self.request_id = request_id
        self.scheduled_ns = scheduled_ns
        self.sent_ns: int | None = None
        self._ended = False
        self._finish: Finish | None = None

    async def run(self, transport: Transport, request: bytes) -> Finish:
        """Carry the request out and return how it ended; `sample` then says what it amounts to."""
        finish = await transport.exchange(request, self, connect_s=self._limits.connect_s)
        if self._timer is not None:
            self._timer.cancel()
        if finish.retried:
            self._warnings.append("stale connection replaced")
        self._finish = finish
        return finish

    @property
    def turned_away(self) -> bool:
        """True if no engine took the request: there was no connection, or a refusal."""
        unconnected = self._finish is not None and self._finish.ending is Ending.UNCONNECTED
        return unconnected or self._status in REFUSALS

    def end(self, now_ns: int) -> None:
        """End it with the load: past a limit it is that limit's outcome, else it is cancelled."""
        self._ended = True
        if self._abort is None:  # still connecting, which has a limit of its own
            return
        moment, ending, detail = self._overdue()
        if now_ns >= moment:
            self._abort(ending, detail)
        else:
            self._abort(Ending.CANCELLED, "")

    # The transport's sink.

    def on_sent(self, t_ns: int, abort: Callable[[Ending, str], None]) -> None:
        """Start the clock; a second sending (after a stale connection) does not start it again."""
        if self.sent_ns is None:
            self.sent_ns = t_ns
        self._abort = abort
        if self._ended:
            self._loop.call_soon(abort, Ending.CANCELLED, "")
        if self._timer is None:
            self._watch()

    def on_byte(self, t_ns: int) -> None:
        """Note the first byte."""
        self._first_byte_ns = t_ns

    def on_head(self, t_ns: int, status: int, headers: list[tuple[bytes, bytes]]) -> None:  # noqa: ARG002
        """Choose the reader by what the server says it sends."""
        self._status = status
        named = dict(reversed(headers))
        wanted = self._endpoint.served_by_header
        if wanted:
            value = named.get(wanted.lower().encode())
            if value is not None:
                text = value.decode("latin-1")
                self._served_by = self._endpoint.served_by.get(text, text)
        self._retry_after = named.get(b"retry-after", b"").decode("latin-1")
        self._location = named.get(b"location", b"").decode("latin-1")
        if status == 200:
            kind = named.get(b"content-type", b"").split(b";")[0].strip().lower()
            self._reader = self._protocol.reader(streamed=kind != b"application/json")
            coding = named.get(b"content-encoding", b"identity")
            if coding.lower() != b"identity" and self._abort is not None:
                self._abort(
                    Ending.MALFORMED, f"content-encoding {coding.decode('latin-1')} was not asked for"
                )

    def on_body(self, t_ns: int, data: bytes) -> None:
        """Pass a piece of the body on."""
        self._body_bytes += len(data)
        if self._body_bytes > MAX_RESPONSE_BYTES and self._abort is not None:
            self._abort(Ending.MALFORMED, f"a response of more than {MAX_RESPONSE_BYTES >> 20} MiB")
        elif self._reader is not None:
            self._reader.feed(t_ns, data)
        elif len(self._error_body) < _ERROR_BODY_BYTES:
            self._error_body += data

    def _overdue(self) -> tuple[int, Ending, str]:
        reader = self._reader
        sent = self.sent_ns if self.sent_ns is not None else self.scheduled_ns
        if reader is None:
            return overdue(self._limits, sent, None)
        return overdue(self._limits, sent, reader.last_token_ns, done=reader.done_seen)

    def _watch(self) -> None:
        """End the request if it is overdue, else look again when it would be."""
        moment, ending, detail = self._overdue()
        left_ns = moment - perf_counter_ns()
        if left_ns <= 0 and self._abort is not None:
            self._abort(ending, detail)
            return
        # A token or [DONE] brings a limit that may be nearer than this one, but never nearer than these.
        left_ns = min(left_ns, AFTER_DONE_NS, round(self._limits.stall_s * 1e9))
        self._timer = self._loop.call_later(max(left_ns, 0) / 1e9 + _LOOK_AFTER_S, self._watch)

    def _conclude(self, finish: Finish) -> Answer:
        if finish.ending is Ending.UNCONNECTED:
            return Answer(outcome=Outcome.CONNECT_ERROR, detail=finish.detail, done_ns=finish.t_ns)
        if self._status is not None and self._status != 200 and finish.ending is not Ending.CANCELLED:
            return self._refusal(self._status, finish)
        reader = self._reader if self._reader is not None else self._protocol.reader()
        return reader.close(finish.t_ns, finish.ending, finish.detail)

    def _refusal(self, status: int, finish: Finish) -> Answer:
        """An answer other than 200; its body says why, its token count is none."""
        outcome = Outcome.REFUSED if status in REFUSALS else Outcome.HTTP_ERROR
        detail = f"HTTP {status}: {_message(self._error_body)}".removesuffix(": ")
        if self._location and 300 <= status < 400:
            detail = f"HTTP {status}: redirects to {self._location}, which is not followed"
        if self._retry_after:
            detail = f"{detail} (Retry-After: {self._retry_after})"
        return Answer(outcome=outcome, detail=detail, done_ns=finish.t_ns)

    def sample(self, *, load: str, label: str, look: int, warmup: bool) -> Sample:
        """Return the sample of a request that was run."""
        if self._finish is None:
            raise RuntimeError(f"{self.request_id} was not run")
        answer = self._conclude(self._finish)
        warnings = [*self._warnings, *answer.warnings]
        if burst(answer.token_ns):
            warnings.append("burst")
        said = f"{answer.reasoning}\0{answer.text}"
        digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest() if answer.token_ns else ""
        return Sample(
            request_id=self.request_id,
            engine=self._endpoint.entity,
            load=load,
            label=label,
            outcome=answer.outcome,
            scheduled_ns=self.scheduled_ns,
            warmup=warmup,
            look=look,
            served_by=self._served_by,
            sent_ns=self.sent_ns,
            first_byte_ns=self._first_byte_ns,
            first_token_ns=answer.token_ns[0] if answer.token_ns else None,
            first_answer_ns=answer.first_answer_ns,
            last_token_ns=answer.token_ns[-1] if answer.token_ns else None,
            done_ns=answer.done_ns,
            token_ns=answer.token_ns,
            prompt_tokens=answer.prompt_tokens,
            output_tokens=answer.output_tokens,
            token_source=answer.token_source,
            http_status=self._status,
            finish_reason=_clean(answer.finish_reason),
            detail=self._shown(answer),
            text_digest=digest,
            warnings=tuple(warnings),
        )

    def _shown(self, answer: Answer) -> str:
        """Return the detail with what had come until then, and without any secret of ours."""
        detail = answer.detail
        if answer.outcome is not Outcome.OK and answer.token_ns:
            partial = (answer.text or answer.reasoning)[:80]
            detail = f"{detail} after {len(answer.token_ns)} chunks: {partial!r}"
        for value in self._endpoint.headers.values():
            secret = value.rpartition(" ")[2]
            if len(secret) >= 6:
                detail = detail.replace(secret, "***")
        return (_clean(detail) or "")[:_DETAIL_CHARACTERS]


def _clean(text: str | None) -> str | None:
    """Return a text that files can hold: JSON may smuggle half a surrogate pair in."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def _message(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return " ".join(text.split())[:_DETAIL_CHARACTERS]
    if isinstance(frame, dict):
        error = error_of(frame)
        if error is not None:
            return error[2]
        if "detail" in frame:
            return str(frame["detail"])
    return text[:_DETAIL_CHARACTERS]
