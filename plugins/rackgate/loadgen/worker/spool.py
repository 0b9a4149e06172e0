"""The spool file: finished samples as lines of JSON, on disk at once, so that a killed load leaves evidence.

A line holds a sample's values in the order of its fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import json

from rackgate.nouns.sample import Outcome, Sample

Row: TypeAlias = tuple[Any, ...]
"""A sample's values in the order of its fields."""

_FIELDS = tuple(field.name for field in fields(Sample))
_values_of = attrgetter(*_FIELDS)
_encoder = json.Encoder()


def field_index(field: str) -> int:
    """Return the index of a field of `Sample` in a row."""
    return _FIELDS.index(field)


def row_of_sample(sample: Sample) -> Row:
    """Return the row of a sample."""
    row: Row = _values_of(sample)
    return row


def row_lines(rows: Sequence[Row]) -> bytes:
    """Return the lines of some rows."""
    return _encoder.encode_lines(rows)


def sample_of_line(line: bytes) -> Sample:
    """Return the sample of one line."""
    row: dict[str, Any] = dict(zip(_FIELDS, json.decode(line), strict=True))
    row["outcome"] = Outcome(row["outcome"])
    row["token_ns"] = tuple(row["token_ns"])
    row["warnings"] = tuple(row["warnings"])
    return Sample(**row)


def read_spool(path: Path) -> Iterator[Sample]:
    """Yield each sample, without an incomplete last line of a killed load."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield sample_of_line(line)
