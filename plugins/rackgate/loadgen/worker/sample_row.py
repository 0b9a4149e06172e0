"""The outcome and the sample of a finished request."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from operator import sub
from typing import Any

from rackgate.engines.protocols.answer import AnswerEnd, AnswerSoFar, Ending
from rackgate.engines.protocols.openai import error_of
from rackgate.engines.protocols.protocol import AnswerReader
from rackgate.engines.retry_after import retry_after_s, server_time
from rackgate.loadgen.http.head import Head
from rackgate.loadgen.http.transport import Finish
from rackgate.loadgen.worker.attempt import REFUSALS, Attempt
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.sample import Outcome

BURST_GAP_NS = 200_000
BURST_CHUNKS = 4
BURST_SIZE = 8

MAX_RETRY_AFTER_S = 1 << 24
"""The longest Retry-After that is kept: half a year."""

_DETAIL_CHARACTERS = 240


def burst(token_ns: Sequence[int]) -> bool:
    """Return whether the chunks arrived faster than an engine makes them, because a hop buffered the stream.

    True if at least 4 chunks arrived all at once, or in clumps of more than 8 on average. Smaller clumps
    may be one step of speculative decoding.
    """
    if len(token_ns) < BURST_CHUNKS:
        return False
    clumps = 1 + sum(map(BURST_GAP_NS.__le__, map(sub, token_ns[1:], token_ns)))
    return clumps == 1 or len(token_ns) / clumps > BURST_SIZE


def sample_row(attempt: Attempt, load_label_look: tuple[str, str, int], *, warmup: bool) -> tuple[Any, ...]:
    """Return the sample of a finished request as a tuple of its values in the order of `Sample`'s fields.

    Constructing a `Sample` would double the cost of this function. An ok answer that does not match the
    expected pattern is wrong.
    """
    finish, settings = attempt.finish, attempt.settings
    if finish is None:
        raise RuntimeError(f"{attempt.request_id} was not run")
    endpoint, expected = settings.endpoint, settings.expected
    reader = attempt.reader or settings.protocol.reader()
    ended = _ended(attempt, finish, reader)
    if expected is not None and ended.outcome is Outcome.OK:
        ended = _checked(ended, "".join(reader.reading.text), expected)
    reading = reader.reading
    token_ns = reading.token_ns
    warnings = ended.warnings
    if burst(token_ns):
        warnings = (*warnings, "burst")
    load, label, look = load_label_look
    head = attempt.head
    return (
        attempt.request_id,
        endpoint.entity,
        load,
        label,
        ended.outcome.value,
        attempt.scheduled_ns,
        warmup,
        look,
        _served_by(endpoint, head, reading.system_fingerprint),
        attempt.sent_ns,
        attempt.first_byte_ns,
        token_ns[0] if token_ns else None,
        reading.first_answer_ns,
        token_ns[-1] if token_ns else None,
        ended.done_ns,
        token_ns,
        reading.prompt_tokens,
        reading.output_tokens,
        reading.token_source,
        None if head is None else head.status,
        _clean(reading.finish_reason),
        _detail(ended, reading, endpoint) if ended.detail or ended.outcome is not Outcome.OK else "",
        _digest(reading) if token_ns else "",
        warnings,
        attempt.connected_ns,
        _retry_after(head),
    )


def _checked(ended: AnswerEnd, text: str, expected: re.Pattern[str]) -> AnswerEnd:
    """Return the end of an ok answer: wrong if its text does not match."""
    if expected.search(text) is not None:
        return ended
    detail = f"the answer does not match {expected.pattern!r}"
    return ended._replace(outcome=Outcome.WRONG, detail=detail)


def _ended(attempt: Attempt, finish: Finish, reader: AnswerReader) -> AnswerEnd:
    if finish.ending is Ending.UNCONNECTED:
        return AnswerEnd(Outcome.CONNECT_ERROR, finish.detail, finish.t_ns)
    head = attempt.head
    if head is not None and head.status != 200 and finish.ending is Ending.MALFORMED:
        return AnswerEnd(Outcome.MALFORMED, f"HTTP {head.status}: {finish.detail}", finish.t_ns)
    if head is not None and head.status != 200 and finish.ending is not Ending.CANCELLED:
        return _refusal(head, attempt.error_body, finish)
    return reader.end(finish.t_ns, finish.ending, finish.detail)


def _refusal(head: Head, body: bytes, finish: Finish) -> AnswerEnd:
    """Return the end of a response other than 200, with the reason from its body."""
    outcome = Outcome.REFUSED if head.status in REFUSALS else Outcome.HTTP_ERROR
    detail = f"HTTP {head.status}: {_message(body)}".removesuffix(": ")
    location = head.headers.get(b"location", b"").decode("latin-1")
    retry_after = head.headers.get(b"retry-after", b"").decode("latin-1")
    if location and 300 <= head.status < 400:
        detail = f"HTTP {head.status}: redirects to {location}, which is not followed"
    if retry_after:
        detail = f"{detail} (Retry-After: {retry_after})"
    return AnswerEnd(outcome, detail, finish.t_ns)


def _served_by(endpoint: Endpoint, head: Head | None, fingerprint: str | None) -> str | None:
    """Return the entity that answered: by header, else by a known fingerprint, else the called engine."""
    if head is None:
        return None
    wanted = endpoint.served_by_header
    value = head.headers.get(wanted.lower().encode()) if wanted else None
    if value is not None:
        text = value.decode("latin-1")
        return endpoint.served_by.get(text, text)
    if fingerprint is not None and fingerprint in endpoint.served_by:
        return endpoint.served_by[fingerprint]
    return endpoint.engine


def _retry_after(head: Head | None) -> int | None:
    """Return the Retry-After of a response in whole seconds, by the server's clock."""
    value = None if head is None else head.headers.get(b"retry-after")
    if head is None or value is None:
        return None
    now = server_time(head.headers.get(b"date", b"").decode("latin-1"))
    seconds = retry_after_s(value.decode("latin-1"), now)
    return None if seconds is None else math.ceil(min(seconds, MAX_RETRY_AFTER_S))


def _digest(reading: AnswerSoFar) -> str:
    text = f"{''.join(reading.reasoning)}\0{''.join(reading.text)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _detail(ended: AnswerEnd, reading: AnswerSoFar, endpoint: Endpoint) -> str:
    """Return the detail with the partial answer and without secrets."""
    detail = ended.detail
    if ended.outcome is not Outcome.OK and reading.token_ns:
        partial = "".join(reading.text or reading.reasoning)[:80]
        detail = f"{detail} after {len(reading.token_ns)} chunks: {partial!r}"
    if not detail:
        return ""
    for value in endpoint.headers.values():
        secret = value.rpartition(" ")[2]
        if len(secret) >= 6:
            detail = detail.replace(secret, "***")
    return (_clean(detail) or "")[:_DETAIL_CHARACTERS]


def _clean(text: str | None) -> str | None:
    """Return valid Unicode: JSON may contain half a surrogate pair."""
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
