"""Writer of a batch's output file: one runner at a time, safe against a crash at any point."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rackgate.batch.input_file import BatchInput, BatchRefused
from rackgate.batch.results import read_results

_SCHEMA = 1


class OutputBusy(BatchRefused):
    """Another runner holds the output (HTTP status 409)."""

    exit_code = 3


class PayloadConflict(BatchRefused):
    """The output belongs to another input (HTTP status 422)."""

    exit_code = 4


class OutputDamaged(BatchRefused):
    """The output holds lines that belong to no task; the file is left unchanged."""

    exit_code = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePlan:
    """How to continue an output: ids to keep, ids to run, and the end of its whole records."""

    kept: tuple[str, ...]
    to_run: tuple[str, ...]
    good_bytes: int
    needs_newline: bool


def plan_resume(batch: BatchInput, output: bytes) -> ResumePlan:
    """Return how to continue after a crash at any point of writing `output`.

    The task of a torn last line (no newline and no whole record) runs again. A whole record that lacks only
    its newline is kept. Raises `OutputDamaged` for an unreadable line before the last or for a repeated id,
    and `PayloadConflict` for an id that the input does not have.
    """
    found = read_results(output)
    last = output.count(b"\n") + 1
    bad = [str(number) for number in found.unreadable if number != last]
    if bad:
        raise OutputDamaged(f"lines {', '.join(bad)} of the output are no records: mend or move the file")
    kept = tuple(record.custom_id for record in found.records)
    strange = sorted(set(kept) - set(batch.ids))
    if strange:
        raise PayloadConflict(
            f"422: the output holds ids that the input does not have: {', '.join(strange[:5])}"
        )
    done = set(kept)
    if len(done) != len(kept):
        raise OutputDamaged("the output holds an id twice: mend or move the file")
    whole_tail = any(not record.whole for record in found.records)
    torn = 0 if whole_tail else len(output.rsplit(b"\n", 1)[-1])
    return ResumePlan(
        kept=kept,
        to_run=tuple(custom_id for custom_id in batch.ids if custom_id not in done),
        good_bytes=len(output) - torn,
        needs_newline=whole_tail,
    )


class OutputFile:
    """The output file, locked and repaired on entering; the kernel releases the lock when the process ends.

    On entering raises `OutputBusy`, `PayloadConflict` or `OutputDamaged` and leaves the file unchanged.
    """

    def __init__(self, path: Path, journal: Path, batch: BatchInput) -> None:
        self._path = path
        self._journal = journal
        self._batch = batch
        self._descriptor = -1
        self.plan = ResumePlan(kept=(), to_run=batch.ids, good_bytes=0, needs_newline=False)

    def __enter__(self) -> Self:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._lock()
            self._check_journal()
            self.plan = plan_resume(self._batch, self._path.read_bytes())
            self._write_journal()
            self._repair()
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def append(self, lines: bytes) -> None:
        """Append whole lines; they are on disk when this returns."""
        written = 0
        while written < len(lines):
            written += os.write(self._descriptor, lines[written:])
        os.fsync(self._descriptor)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputBusy(f"409: another runner holds {self._path}") from None

    def _check_journal(self) -> None:
        if not self._journal.exists():
            return
        try:
            digest = json.loads(self._journal.read_bytes())["input_digest"]
        except (ValueError, KeyError, TypeError):
            raise OutputDamaged(f"{self._journal} is not a journal of a batch") from None
        if digest != self._batch.digest():
            raise PayloadConflict(f"422: {self._path} belongs to another input; choose another output")

    def _write_journal(self) -> None:
        if self._journal.exists():
            return
        # Written by rename, since a journal that a crash has torn would lock its owner out.
        entry = {"schema": _SCHEMA, "input_digest": self._batch.digest(), "tasks": len(self._batch.tasks)}
        fresh = self._journal.with_name(self._journal.name + ".new")
        with fresh.open("wb") as file:
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._journal)
        for folder in {self._journal.parent, self._path.parent}:
            _sync_folder(folder)

    def _repair(self) -> None:
        if self.plan.needs_newline:
            self.append(b"\n")
        elif self.plan.good_bytes < os.fstat(self._descriptor).st_size:
            os.ftruncate(self._descriptor, self.plan.good_bytes)
            os.fsync(self._descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
