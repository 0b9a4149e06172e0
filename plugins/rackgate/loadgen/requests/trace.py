"""Public request traces: Mooncake, Azure LLM inference, BurstGPT and ShareGPT, checked line by line."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rackgate.loadgen.requests.words import token_counter
from rackgate.nouns.load import Arrival, Load

MOONCAKE_BLOCK_TOKENS = 512
"""Tokens per hash id of Mooncake."""

CHARACTERS_PER_TOKEN = 4
"""Characters per token of ShareGPT texts without a tokenizer."""


class TraceError(ValueError):
    """An unusable trace: the file, the line and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One request of a trace; `offset_s` as written, None where the format has no times.

    Requests that share leading `blocks` share the beginning of their prompts. `text` is the prompt
    itself where the trace holds it.
    """

    prompt_tokens: int
    output_tokens: int
    offset_s: float | None = None
    blocks: tuple[int, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The requests of a trace in their order.

    `left_out` counts conversations without a question and an answer, and rows of requests that failed when
    they were recorded.
    """

    form: str
    requests: tuple[TraceRequest, ...]
    left_out: int = 0

    @property
    def left_out_reason(self) -> str:
        """The number of entries left out and the reason, empty if there are none."""
        if not self.left_out:
            return ""
        what = "conversations that begin with no exchange" if self.form == "sharegpt" else "failed requests"
        return f"{self.left_out} of {self.left_out + len(self.requests)} left out: {what}"

    @property
    def timed(self) -> bool:
        """True if every request has its time."""
        return all(request.offset_s is not None for request in self.requests)

    def in_time(self, load: Load) -> int:
        """Return the number of requests that a load offers; with the trace's times, those before its end."""
        if load.arrival is not Arrival.TRACE or load.duration_s is None:
            return len(self.requests)
        first = self.moments_s[0]
        return sum(load.in_time(moment - first) for moment in self.moments_s)

    @property
    def moments_s(self) -> tuple[float, ...]:
        """The times of a timed trace, as written."""
        return tuple(request.offset_s or 0.0 for request in self.requests)


def read_trace(path: Path, form: str = "auto", *, tokens_in: Callable[[str], int] | None = None) -> Trace:
    """Return the requests of a file; `auto` detects the format by the start of the file.

    `tokens_in` counts the tokens of a text, by default as a quarter of its characters. A ShareGPT
    conversation gives its first exchange. BurstGPT rows without response tokens are failed requests, which
    are left out and counted. Raises `TraceError` for an unreadable file or line, a length below 1, and times
    that go backwards.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
    form = _detect_format(path, text) if form == "auto" else form
    if form not in TRACE_FORMATS:
        raise TraceError(f"{path}: no trace format {form!r}; valid: {', '.join(TRACE_FORMATS)}, auto")
    left_out = 0
    if form == "sharegpt":
        requests, left_out = _sharegpt(path, text, tokens_in or _estimated_tokens)
    else:
        rows = list(_rows(path, text, TRACE_FORMATS[form], failed=form == "burstgpt"))
        requests = [row for row in rows if row.output_tokens]
        left_out = len(rows) - len(requests)
    if not requests:
        raise TraceError(f"{path}: no request in it")
    return Trace(form=form, requests=tuple(requests), left_out=left_out)


def _rows(
    path: Path,
    text: str,
    read_lines: Callable[[str], Iterator[tuple[int, TraceRequest | Exception]]],
    *,
    failed: bool,
) -> Iterator[TraceRequest]:
    """Yield the requests of a table, with `failed` also those without output tokens."""
    before = -math.inf
    for line, found in read_lines(text):
        if isinstance(found, Exception):
            raise TraceError(f"{path}:{line}: {_reason(found)}") from found
        for name, least in (("prompt_tokens", 1), ("output_tokens", 0 if failed else 1)):
            if getattr(found, name) < least:
                raise TraceError(f"{path}:{line}: {name} of {getattr(found, name)}: nothing to offer")
        moment = found.offset_s
        if moment is not None and not math.isfinite(moment):
            raise TraceError(f"{path}:{line}: {moment} is no time")
        if moment is not None and moment < before:
            raise TraceError(f"{path}:{line}: time goes backwards, from {before:g} s to {moment:g} s")
        before = before if moment is None else moment
        yield found


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"no {error.args[0]!r}"
    return "a value is missing" if "NoneType" in str(error) else str(error)


def _mooncake(text: str) -> Iterator[tuple[int, TraceRequest | Exception]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield number, _mooncake_row(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                yield number, error


def _mooncake_row(row: Any) -> TraceRequest:
    if not isinstance(row, dict):
        raise TypeError(f"a JSON object is due, not {type(row).__name__}")
    blocks = tuple(_whole(block) for block in row.get("hash_ids", ()))
    prompt = _whole(row["input_length"])
    if (
        blocks
        and not (len(blocks) - 1) * MOONCAKE_BLOCK_TOKENS < prompt <= len(blocks) * MOONCAKE_BLOCK_TOKENS
    ):
        raise ValueError(f"{len(blocks)} hash_ids of {MOONCAKE_BLOCK_TOKENS} tokens for {prompt} tokens")
    return TraceRequest(
        prompt_tokens=prompt,
        output_tokens=_whole(row["output_length"]),
        offset_s=float(row["timestamp"]) / 1e3,
        blocks=blocks,
    )


def _azure(text: str) -> Iterator[tuple[int, TraceRequest | Exception]]:
    def row(cells: Mapping[str, str]) -> TraceRequest:
        return TraceRequest(
            prompt_tokens=_whole(cells["ContextTokens"]),
            output_tokens=_whole(cells["GeneratedTokens"]),
            offset_s=_moment_s(cells["TIMESTAMP"]),
        )

    return _table(text, row)


def _burstgpt(text: str) -> Iterator[tuple[int, TraceRequest | Exception]]:
    def row(cells: Mapping[str, str]) -> TraceRequest:
        return TraceRequest(
            prompt_tokens=_whole(cells["Request tokens"]),
            output_tokens=_whole(cells["Response tokens"]),
            offset_s=float(cells["Timestamp"]),
        )

    return _table(text, row)


def _table(
    text: str, row: Callable[[Mapping[str, str]], TraceRequest]
) -> Iterator[tuple[int, TraceRequest | Exception]]:
    table = csv.DictReader(text.splitlines())
    for cells in table:
        try:
            yield table.line_num, row(cells)
        except (ValueError, KeyError, TypeError) as error:
            yield table.line_num, error


def _moment_s(text: str) -> float:
    """Return an Azure timestamp in seconds; its fraction may have seven digits."""
    whole, dot, rest = text.strip().partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :]
    moment = datetime.fromisoformat(whole + zone)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return moment.timestamp() + (float(f"0.{digits}") if dot and digits else 0.0)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"{value!r} is no whole number")
    return int(value)


def _sharegpt(path: Path, text: str, tokens_in: Callable[[str], int]) -> tuple[list[TraceRequest], int]:
    """Return the first exchange of each conversation, and the number of conversations without one."""
    try:
        conversations = json.loads(text)
    except ValueError as error:
        raise TraceError(f"{path}: {error}") from error
    if not isinstance(conversations, list):
        raise TraceError(f"{path}: a list of conversations is due, not {type(conversations).__name__}")
    found: list[TraceRequest] = []
    left_out = 0
    for number, conversation in enumerate(conversations, 1):
        turns = conversation.get("conversations") if isinstance(conversation, dict) else None
        if not isinstance(turns, list):
            raise TraceError(f"{path}: conversation {number}: no list 'conversations'")
        messages = [
            (str(turn.get("from")), str(turn.get("value") or "")) for turn in turns if isinstance(turn, dict)
        ]
        if not _is_exchange(messages):
            left_out += 1
        else:
            prompt, answer = messages[0][1], messages[1][1]
            found.append(
                TraceRequest(
                    prompt_tokens=max(1, tokens_in(prompt)),
                    output_tokens=max(1, tokens_in(answer)),
                    text=prompt,
                )
            )
    return found, left_out


def _is_exchange(messages: list[tuple[str, str]]) -> bool:
    """Return whether a conversation begins with a question and an answer."""
    if [who for who, _ in messages[:2]] not in (["human", "gpt"], ["user", "assistant"]):
        return False
    return all(text.strip() for _, text in messages[:2])


def _estimated_tokens(text: str) -> int:
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


TRACE_FORMATS: dict[str, Callable[[str], Iterator[tuple[int, TraceRequest | Exception]]]] = {
    "mooncake": _mooncake,
    "azure": _azure,
    "burstgpt": _burstgpt,
    "sharegpt": lambda _text: iter(()),
}
"""Row readers by format; ShareGPT has no rows and is read by `_sharegpt`."""


def _detect_format(path: Path, text: str) -> str:
    begin = text.lstrip()[:4096]
    first = begin.partition("\n")[0]
    if begin.startswith("["):
        return "sharegpt"
    if begin.startswith("{"):
        return "mooncake"
    if "ContextTokens" in first:
        return "azure"
    if "Request tokens" in first:
        return "burstgpt"
    raise TraceError(f"{path}:1: of no known trace format ({', '.join(TRACE_FORMATS)}): {first[:60]!r}")


def trace_of(load: Load) -> Trace | None:
    """Return the trace of a load, None if it has none. Raises `TraceError`."""
    if load.trace is None:
        return None
    count = token_counter(load.tokenizer) if load.tokenizer is not None else None
    path = Path(load.trace)
    trace = read_trace(path, load.trace_format, tokens_in=count)
    if load.arrival is Arrival.TRACE and not trace.timed:
        raise TraceError(f"{path}: {trace.form} has no times; take another arrival")
    for number, request in enumerate(trace.requests, 1):
        needed = request.prompt_tokens + request.output_tokens
        if load.context_tokens is not None and needed > load.context_tokens:
            text = f"{needed} tokens exceed the model's context of {load.context_tokens}"
            raise TraceError(f"{path}: request {number}: {text}")
    return trace
