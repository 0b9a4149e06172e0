"""Finished requests as lines of JSON: on disk at once, so that a killed load leaves its evidence."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rackgate.sample import Outcome, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["read_spool", "sample_of_line", "spool_line"]

_FIELDS = tuple(field.name for field in fields(Sample))


def spool_line(sample: Sample) -> bytes:
    """Return a sample as one line."""
    row = {name: getattr(sample, name) for name in _FIELDS}
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def sample_of_line(line: bytes) -> Sample:
    """Return the sample of one line."""
    row: dict[str, Any] = json.loads(line)
    row["outcome"] = Outcome(row["outcome"])
    row["token_ns"] = tuple(row["token_ns"])
    row["warnings"] = tuple(row["warnings"])
    return Sample(**row)


def read_spool(path: Path) -> Iterator[Sample]:
    """Yield each whole sample; a torn last line of a killed load is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield sample_of_line(line)
