"""`Retry-After` in both of its forms, and the wait before a request is sent again."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_FIRST_WAIT_S = 0.5


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """Return the seconds that a `Retry-After` value asks for, not below 0; None for nonsense.

    The value is a number of seconds or an HTTP date; a date without a zone is UTC. `now` has a zone.
    The result is not capped: see `wait_s`.
    """
    text = (value or "").strip()
    try:
        seconds = float(text)
    except ValueError:
        seconds = _until(text, now)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def wait_s(asked_s: float | None, attempt: int, *, cap_s: float, jitter: float = 1.0) -> float:
    """Return the wait before the next attempt, at most `cap_s`.

    What the server asked for, if it did; else 0.5 s doubled with each attempt (from 0), times `jitter`.
    """
    if asked_s is not None:
        return min(asked_s, cap_s)
    return min(_FIRST_WAIT_S * 2.0 ** min(attempt, 20), cap_s) * jitter


def server_time(date: str | None) -> datetime:
    """Return the moment of a response's `Date`, or ours: the server's clock need not be ours."""
    try:
        moment = parsedate_to_datetime(date or "")
    except (ValueError, OverflowError, TypeError):
        return datetime.now(tz=UTC)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _until(text: str, now: datetime) -> float:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError, TypeError):
        return math.nan
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - now).total_seconds()
