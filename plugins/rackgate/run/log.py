"""The evidence of a run as it is written: its folder, records, grade and sample files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rackgate.evidence.record import Record, RecordLog
from rackgate.evidence.redaction import Redactor
from rackgate.nouns.target import GRADES
from rackgate.run.payloads import masked


class FolderInUse(Exception):
    """The run folder already holds evidence."""


class NotOpen(Exception):
    """A record before the first one."""


class EvidenceLog:
    """Appends records to the run folder; secrets are masked in every text first.

    `evidence` is the folder that is never rewritten. `grade` is one of `GRADES` and never rises.
    `started_ns` is the monotonic moment at which the run began, `run_id` its UTC second and process id.
    """

    def __init__(
        self,
        folder: Path,
        redactor: Redactor,
        grade: str,
        on_record: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.folder = folder
        self.evidence = folder / "evidence"
        if self.evidence.exists() and any(self.evidence.iterdir()):
            raise FolderInUse(f"{folder} already holds the evidence of a run: give another --rack-out")
        self.redactor = redactor
        self.grade = grade
        self.started_ns = time.perf_counter_ns()
        self.run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid():x}"
        self._on_record = on_record
        self._records: RecordLog | None = None
        self._sample_files = 0
        self._stages_begun: list[tuple[int, str]] = []

    @property
    def opened(self) -> bool:
        """Whether the folder was made and the first record written."""
        return self._records is not None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return (time.perf_counter_ns() - self.started_ns) / 1e9

    def open(self, **first: Any) -> None:
        """Make the folder and write the first record."""
        for name in ("samples", "logs"):
            (self.evidence / name).mkdir(parents=True, exist_ok=True)
        self._records = RecordLog(self.evidence / "records.jsonl")
        self.record("run", run_id=self.run_id, **first)

    def record(self, kind: str, **payload: Any) -> None:
        """Append one record. Raises `NotOpen` before `open`."""
        if self._records is None:
            raise NotOpen(f"record '{kind}': the run has not begun")
        record = Record(
            seq=self._records.seq,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            t_ns=time.perf_counter_ns(),
            kind=kind,
            payload=masked(payload, self.redactor),
        )
        self._records.append(record)
        if self._on_record is not None:
            self._on_record({"kind": kind, "seq": record.seq, "at": record.at, **record.payload})

    def close(self, **payload: Any) -> None:
        """Write the last record and close the file; raises `NotOpen` before `open`."""
        if self._records is None:
            raise NotOpen("the run has not begun")
        counted = {"records": self._records.seq, "digest": self._records.digest()}
        self.record("end", grade=self.grade, **counted, duration_s=self.elapsed_s, **payload)
        self._records.close()

    def event(self, name: str, text: str) -> None:
        """Record anything that is worth a line."""
        self.record("event", event=name, text=text)

    def begin_stage(self, stage: str) -> None:
        """Record that a stage begins."""
        self._stages_begun.append((time.perf_counter_ns(), stage))
        self.record("stage", stage=stage, phase="begin", text=f"stage {stage} begins")

    def stage_at(self, moment_ns: int) -> str:
        """Return the stage that had begun last at a moment, "" before the first."""
        return next((stage for began_ns, stage in reversed(self._stages_begun) if began_ns <= moment_ns), "")

    def sample_file(self, name: str) -> Path:
        """Return a path for the samples of one more load, numbered in the order of loads."""
        self._sample_files += 1
        safe = re.sub(r"[^A-Za-z0-9._+-]", "_", name)
        return self.evidence / "samples" / f"{self._sample_files:03d}.{safe}.parquet"

    def lower_grade(self, grade: str, text: str) -> None:
        """Record that the evidence is worth less than the target declares, and why; it never rises."""
        if GRADES.index(grade) < GRADES.index(self.grade):
            self.grade = grade
            self.record("event", event="grade", text=text, grade=grade)
