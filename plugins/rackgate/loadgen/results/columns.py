"""The columns of a sample table: their names and types, and how they are made from samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rackgate.loadgen.results.dictionary_column import DictionaryColumn
from rackgate.nouns.load import Origin
from rackgate.nouns.sample import Outcome, Sample

Column: TypeAlias = NDArray[Any]

DICTIONARY = ("engine", "load", "label", "outcome", "served_by", "token_source", "finish_reason")
"""Repeating strings; a missing one is empty."""

MOMENTS = (
    "sent_ns", "connected_ns", "first_byte_ns", "first_token_ns", "first_answer_ns", "last_token_ns",
    "done_ns",
)  # fmt: skip
COUNTS = ("prompt_tokens", "output_tokens", "http_status", "retry_after_s")
"""Numbers that may be missing: NaN in memory, null in a file."""

DTYPES: dict[str, Any] = {
    "scheduled_ns": np.int64, "look": np.int16, "warmup": np.bool_, "burst": np.bool_,
    **dict.fromkeys(MOMENTS, np.float64), **dict.fromkeys(COUNTS, np.float32), "tpot_ms": np.float64,
    **dict.fromkeys(("tokens_per_chunk", "chunks", "shared_chunks"), np.float32),
}  # fmt: skip
"""The types of numbers in memory."""

CACHED = (*DICTIONARY, *DTYPES)
"""Columns that a table keeps in memory."""

UNCACHED = ("request_id", "text_digest", "detail", "warnings", "token_ns")
"""Columns of variable size per row; a table of a file reads them each time."""

DERIVED = (
    "ttft_ms", "ttft_sent_ms", "time_to_first_answer_ms", "tpot_ms", "e2e_ms", "schedule_lag_ms",
    "connect_ms", "tokens_per_chunk", "chunks", "shared_chunks",
)  # fmt: skip
"""Columns that are no fields of `Sample`; those that are not cached are differences of moments."""

TRACEPARENT = "traceparent"
"""Computed from `request_id` in memory; in a file so that it can be searched."""


class LazyColumns(dict[str, "Column | DictionaryColumn"]):
    """Columns by name, each fetched at its first use."""

    def __init__(self, fetch: Callable[[str], Column | DictionaryColumn]) -> None:
        super().__init__()
        self._fetch = fetch

    def __missing__(self, name: str) -> Column | DictionaryColumn:
        self[name] = self._fetch(name)
        return self[name]


def cached_columns(samples: Sequence[Sample]) -> dict[str, Column | DictionaryColumn]:
    """Return the columns of samples that are kept in memory."""
    values: dict[str, Iterable[float | None]] = {
        "burst": ("burst" in sample.warnings for sample in samples),
        "tpot_ms": (None if "burst" in sample.warnings else sample.tpot_ms for sample in samples),
        **_chunk_counts([sample.token_ns for sample in samples]),
    }
    columns: dict[str, Column | DictionaryColumn] = {
        name: DictionaryColumn.of(getattr(sample, name) or "" for sample in samples) for name in DICTIONARY
    }
    for name, dtype in DTYPES.items():
        column = values[name] if name in values else (getattr(sample, name) for sample in samples)
        columns[name] = np.array([np.nan if value is None else value for value in column], dtype=dtype)
    return columns


def uncached_columns(samples: Sequence[Sample]) -> dict[str, Column]:
    """Return the columns of samples that are of variable size per row."""
    return {
        "request_id": np.array([sample.request_id for sample in samples], dtype=np.str_),
        "text_digest": np.array([sample.text_digest for sample in samples], dtype=np.str_),
        "detail": object_column(sample.detail for sample in samples),
        "warnings": object_column(sample.warnings for sample in samples),
        "token_ns": object_column(np.array(sample.token_ns, dtype=np.int64) for sample in samples),
    }


def flatten(token_ns: Sequence[Sequence[int]] | Column) -> tuple[Column, Column]:
    """Return the moments of all answers in one array, and the number of moments of each answer."""
    counts = np.array([len(moments) for moments in token_ns], dtype=np.int64)
    return np.fromiter(chain.from_iterable(token_ns), dtype=np.int64, count=int(counts.sum())), counts


def _chunk_counts(token_ns: Sequence[Sequence[int]]) -> dict[str, list[float]]:
    """Return each answer's chunks, and those of them that arrived in one read with another chunk."""
    moments, counts = flatten(token_ns)
    answer = np.repeat(np.arange(len(counts)), counts)
    same = (moments[1:] == moments[:-1]) & (answer[1:] == answer[:-1])
    shared = np.zeros(len(moments), dtype=np.bool_)
    shared[1:] |= same
    shared[:-1] |= same
    return {
        "chunks": counts.tolist(),
        "shared_chunks": np.bincount(answer[shared], minlength=len(counts)).tolist(),
    }


def derive(name: str, column: Any, origin: Origin) -> Column:
    """Return a column in ms that is a difference of two moments; `column(name)` returns those.

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
        values[~column("outcome").isin((Outcome.OK,))] = np.nan
    return np.asarray(values)


def object_column(values: Iterable[Any]) -> Column:
    """Return a column of Python objects."""
    items = list(values)
    column = np.empty(len(items), dtype=object)
    for row, item in enumerate(items):
        column[row] = item
    return column
