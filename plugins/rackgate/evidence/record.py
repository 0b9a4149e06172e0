"""The record file: one JSON line each with `schema`, `seq`, `at`, `kind` and a payload; append-only."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

SCHEMA = 1

JUDGEMENT = "judgement.jsonl"
"""File of the records of a later judgement, in the folder of its view."""

KINDS = {
    "run": "what was asked: target, acceptance, profile, seed, versions, digests; the first record",
    "plan": "every check that was asked, before the first is judged",
    "facts": "what a node says that should be the same on all: each fact's value, or why there is none",
    "engine": "an engine that was started or found, or why it could not be",
    "stage": "a stage began or ended",
    "load": "a load that was offered: counters, window, looks, file of samples, clocks of load machines",
    "probe": "a node that a probe asked, whether it answered, with command, status, digest and log",
    "measurement": "a measured value, judged or not",
    "verdict": "one check's verdict with its measurement, bound, hint and, unmet, its chain (`diagnosis`)",
    "gate": "an entity that was quarantined, or stages that were gated, and by which check",
    "fault": "a moment of a fault: intended, injected, proven, healed, proven healed",
    "event": "anything else worth a line, such as leftovers of a dead run",
    "end": "verdict, counts, exit status and the digest of all that came before; the last record",
}
"""Every kind of record, and what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line. `at` is wall time (RFC 3339, UTC); `t_ns` the same moment on CLOCK_MONOTONIC."""

    seq: int
    at: str
    t_ns: int
    kind: str
    payload: Mapping[str, Any]
    schema: int = SCHEMA

    def to_json(self) -> str:
        """Return the line without its newline; strict JSON, infinities as the strings "inf" / "-inf"."""
        body = {
            "schema": self.schema,
            "seq": self.seq,
            "at": self.at,
            "t_ns": self.t_ns,
            "kind": self.kind,
            **self.payload,
        }
        return json.dumps(_plain(body), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return value


class RecordLog:
    """The one writer of `records.jsonl`: each record is on disk before `append` returns."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("xb")
        self._digest = hashlib.sha256()
        self.seq = 0

    def append(self, record: Record) -> None:
        """Write one record."""
        line = record.to_json().encode() + b"\n"
        self._file.write(line)
        self._file.flush()
        os.fdatasync(self._file.fileno())
        self._digest.update(line)
        self.seq += 1

    def digest(self) -> str:
        """SHA-256 of all lines so far, hexadecimal."""
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file; appending afterwards is an error."""
        self._file.close()


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield each whole record as written; a torn last line of a killed run is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON value in canonical form, hexadecimal."""
    text = json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
