"""Checks from files that a batch has exactly one result for each task, also after a retry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rackgate.batch.input_file import read_input
from rackgate.batch.results import Result, Results, read_results
from rackgate.nouns.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The outcome of each task. Tuples hold ids, `unreadable` line numbers.

    `terminal` counts tasks with exactly one record, `records` all readable records. The record of a
    `failed` task is no answer. The record of a `resubmit` task says that it never ran. `overwritten` tasks
    were terminal before the retry, and their record is changed or gone. A full retry of the finished batch
    added or changed the records of `regenerated` tasks. The answers of `mismatched` tasks differ from the
    undisturbed run. Each of the last three is None if its input was not given. `labels` maps each task to
    the label of its record.
    """

    tasks: int
    records: int
    terminal: int
    lost: tuple[str, ...]
    duplicated: tuple[str, ...]
    unexpected: tuple[str, ...]
    failed: tuple[str, ...]
    resubmit: tuple[str, ...]
    unreadable: tuple[int, ...]
    overwritten: tuple[str, ...] | None
    regenerated: tuple[str, ...] | None
    mismatched: tuple[str, ...] | None
    labels: Mapping[str, str]

    @property
    def damaged(self) -> bool:
        """Whether there is a duplicate, unexpected, unreadable, overwritten or regenerated record."""
        return bool(
            self.duplicated or self.unexpected or self.unreadable or self.overwritten or self.regenerated
        )

    @property
    def verdict(self) -> Verdict:
        """FAIL if a task is lost or a record damaged.

        UNKNOWN without any record, or if the state before the retry or after a full retry was not given.
        Failed requests are terminal; the error rate judges them.
        """
        if self.damaged:
            return Verdict.FAIL
        if not self.tasks or not self.records:
            return Verdict.UNKNOWN
        if self.lost:
            return Verdict.FAIL
        partial = self.overwritten is None or self.regenerated is None
        return Verdict.UNKNOWN if partial else Verdict.PASS


def check_batch(
    batch_input: bytes,
    *outputs: bytes,
    before_retry: bytes | None = None,
    after_full_retry: bytes | None = None,
    undisturbed: bytes | None = None,
) -> BatchReport:
    """Compare the input of a batch with its outputs (output file, and error file if there is one).

    Records are joined by custom_id, in any order. `before_retry` is the output after the kill of the
    runner, `after_full_retry` the output after another run of the finished batch, and `undisturbed` the
    output of a run without a kill. Raises `InputRefused` if the input is not a batch.
    """
    ids = read_input(batch_input).ids
    known = set(ids)
    parts = [read_results(output) for output in outputs]
    found = Results(
        records=tuple(record for part in parts for record in part.records),
        unreadable=tuple(number for part in parts for number in part.unreadable),
    )
    joined = found.by_id
    single = {custom_id: joined[custom_id][0] for custom_id in ids if len(joined.get(custom_id, ())) == 1}
    return BatchReport(
        tasks=len(ids),
        records=len(found.records),
        terminal=len(single),
        lost=tuple(custom_id for custom_id in ids if custom_id not in joined),
        duplicated=tuple(custom_id for custom_id, records in joined.items() if len(records) > 1),
        unexpected=tuple(custom_id for custom_id in joined if custom_id not in known),
        failed=tuple(custom_id for custom_id, record in single.items() if not record.ok),
        resubmit=tuple(custom_id for custom_id, record in single.items() if record.resubmit),
        unreadable=found.unreadable,
        overwritten=None if before_retry is None else _overwritten(read_results(before_retry), found),
        regenerated=None if after_full_retry is None else _changed(found, read_results(after_full_retry)),
        mismatched=None if undisturbed is None else _mismatched(read_results(undisturbed), single),
        labels={custom_id: record.label for custom_id, record in single.items()},
    )


def _overwritten(before: Results, after: Results) -> tuple[str, ...]:
    """Return ids of records that were whole and final before and are changed or gone."""
    # A line without its newline was not yet written, and a task that never ran may run.
    present = Counter(record.content for record in after.records)
    final = [record for record in before.records if record.whole and not record.resubmit]
    return tuple(dict.fromkeys(record.custom_id for record in final if not present[record.content]))


def _changed(before: Results, after: Results) -> tuple[str, ...]:
    """Return ids of records that are not equally often in both."""
    old = Counter((record.custom_id, record.content) for record in before.records)
    new = Counter((record.custom_id, record.content) for record in after.records)
    return tuple(dict.fromkeys(custom_id for custom_id, _ in ((old - new) + (new - old))))


def _mismatched(undisturbed: Results, single: Mapping[str, Result]) -> tuple[str, ...]:
    """Return ids whose answers differ; ids without an answer on either side are not compared."""
    return tuple(
        record.custom_id
        for record in undisturbed.records
        if record.ok and (mine := single.get(record.custom_id)) and mine.ok and mine.text != record.text
    )
