"""The columns of samples: which there are, how they are kept, and how they are made from samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rackgate.loadgen.results.labels import Labels
from rackgate.nouns.load import Origin
from rackgate.nouns.sample import Outcome, Sample

Column: TypeAlias = NDArray[Any]

LABELS = ("engine", "load", "label", "outcome", "served_by", "token_source", "finish_reason")
"""Texts that repeat."""

MOMENTS = (
    "sent_ns", "connected_ns", "first_byte_ns", "first_token_ns", "first_answer_ns", "last_token_ns",
    "done_ns",
)  # fmt: skip
COUNTS = ("prompt_tokens", "output_tokens", "http_status", "retry_after_s")
"""Numbers that may be missing: NaN in memory, null in a file."""

TEXTS = ("request_id", "text_digest", "detail", "warnings", "token_ns")
"""What is of another size in each row; a table with a file leaves them there until they are asked for."""

TRACEPARENT = "traceparent"
"""Made of `request_id` when somebody asks; in a file it stands there to be found."""

DERIVED = (
    "ttft_ms", "ttft_sent_ms", "time_to_first_answer_ms", "tpot_ms", "e2e_ms", "schedule_lag_ms",
    "connect_ms", "tokens_per_chunk", "chunks", "shared_chunks",
)  # fmt: skip
MADE = ("tpot_ms", "tokens_per_chunk", "chunks", "shared_chunks")
"""Those of them that are made with the sample; the other ones are differences of moments."""

_OPTIONAL = frozenset({"served_by", "token_source", "finish_reason"})


KEPT = (*LABELS, "scheduled_ns", "look", "warmup", "burst", *MOMENTS, *COUNTS, *MADE)
"""What a table keeps in memory; the other derived columns are differences of these."""


class Columns(dict[str, "Column | Labels"]):
    """Columns by name; those that are not there yet are fetched when they are asked for."""

    def __init__(self, fetch: Callable[[str], Column | Labels]) -> None:
        super().__init__()
        self._fetch = fetch

    def __missing__(self, name: str) -> Column | Labels:
        self[name] = self._fetch(name)
        return self[name]


def columns_of(samples: Sequence[Sample]) -> dict[str, Column | Labels]:
    """Return what is kept in memory of samples: numbers and labels."""
    columns: dict[str, Column | Labels] = {
        name: Labels.of(getattr(sample, name) or "" for sample in samples) for name in LABELS
    }
    columns["scheduled_ns"] = np.array([sample.scheduled_ns for sample in samples], dtype=np.int64)
    columns["look"] = np.array([sample.look for sample in samples], dtype=np.int16)
    columns["warmup"] = np.array([sample.warmup for sample in samples], dtype=np.bool_)
    columns["burst"] = np.array(["burst" in sample.warnings for sample in samples], dtype=np.bool_)
    for name in MOMENTS:
        columns[name] = _numbers((getattr(sample, name) for sample in samples), np.float64)
    for name in COUNTS:
        columns[name] = _numbers((getattr(sample, name) for sample in samples), np.float32)
    columns["tpot_ms"] = _numbers(
        (None if "burst" in sample.warnings else sample.tpot_ms for sample in samples), np.float64
    )
    columns["tokens_per_chunk"] = _numbers((sample.tokens_per_chunk for sample in samples), np.float32)
    columns["chunks"], columns["shared_chunks"] = _chunks([sample.token_ns for sample in samples])
    return columns


def flat(token_ns: Sequence[Sequence[int]] | Column) -> tuple[Column, Column]:
    """Return all moments of some answers, one after the other, and how many each answer has."""
    counts = np.array([len(moments) for moments in token_ns], dtype=np.int64)
    return np.fromiter(chain.from_iterable(token_ns), dtype=np.int64, count=int(counts.sum())), counts


def _chunks(token_ns: Sequence[Sequence[int]]) -> tuple[Column, Column]:
    """Return how many chunks each answer had, and how many of them came in one read with another one."""
    moments, counts = flat(token_ns)
    answer = np.repeat(np.arange(len(counts)), counts)
    same = (moments[1:] == moments[:-1]) & (answer[1:] == answer[:-1])
    shared = np.zeros(len(moments), dtype=np.bool_)
    shared[1:] |= same
    shared[:-1] |= same
    return counts.astype(np.float32), np.bincount(answer[shared], minlength=len(counts)).astype(np.float32)


def texts_of(samples: Sequence[Sample]) -> dict[str, Column]:
    """Return the columns of samples that are of another size in each row."""
    return {
        "request_id": np.array([sample.request_id for sample in samples], dtype=np.str_),
        "text_digest": np.array([sample.text_digest for sample in samples], dtype=np.str_),
        "detail": objects(sample.detail for sample in samples),
        "warnings": objects(sample.warnings for sample in samples),
        "token_ns": objects(np.array(sample.token_ns, dtype=np.int64) for sample in samples),
    }


def derived(name: str, column: Any, origin: Origin) -> Column:
    """Return a column in ms that is a difference of two others; `column` gives those by name.

    `e2e_ms` is NaN unless the request is ok.
    """
    sent, scheduled = "sent_ns", "scheduled_ns"
    start = scheduled if str(origin) == scheduled.removesuffix("_ns") else sent
    later, earlier = {
        "ttft_ms": ("first_token_ns", start),
        "ttft_sent_ms": ("first_token_ns", sent),
        "time_to_first_answer_ms": ("first_answer_ns", start),
        "e2e_ms": ("done_ns", start),
        "schedule_lag_ms": (sent, scheduled),
        "connect_ms": ("connected_ns", sent),
    }[name]
    values = (column(later) - column(earlier)) / 1e6
    if name == "e2e_ms":
        values[~column("outcome").are((Outcome.OK,))] = np.nan
    return np.asarray(values)


def sample_of(fields: dict[str, Any]) -> Sample:
    """Return the sample of one row's values as they are kept."""
    for name in _OPTIONAL:
        fields[name] = fields[name] or None
    for name in (*MOMENTS, *COUNTS):
        fields[name] = None if np.isnan(fields[name]) else int(fields[name])
    for name in ("request_id", "text_digest", "detail"):
        fields[name] = str(fields[name] or "")
    return Sample(
        **fields
        | {
            "outcome": Outcome(fields["outcome"]),
            "scheduled_ns": int(fields["scheduled_ns"]),
            "look": int(fields["look"]),
            "warmup": bool(fields["warmup"]),
            "warnings": tuple(fields["warnings"]),
            "token_ns": tuple(int(moment) for moment in fields["token_ns"]),
        }
    )


def objects(values: Iterable[Any]) -> Column:
    """Return a column of values that are no numbers."""
    items = list(values)
    column = np.empty(len(items), dtype=object)
    for row, item in enumerate(items):
        column[row] = item
    return column


def _numbers(values: Iterable[float | None], kind: Any) -> Column:
    return np.array([np.nan if value is None else value for value in values], dtype=kind)
