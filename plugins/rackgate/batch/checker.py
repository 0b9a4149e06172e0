"""Exactly once, judged from files alone: what was asked, what is there, what was there before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rackgate.batch.results import Result, Results, read_results
from rackgate.batch.tasks import read_input
from rackgate.nouns.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What became of every task; ids where not said otherwise.

    `terminal` counts tasks with exactly one record, `records` all readable ones. `failed` have one that
    is no answer. `unreadable` are line numbers. `overwritten` were terminal before the retry and are
    changed or gone; `regenerated` were added or changed by a full retry of a finished batch;
    `mismatched` differ from the undisturbed run: each None if that was not looked at. `resubmit` say
    themselves that they never ran. `labels` tells how each task's record reads.
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
        """True if something is there that must not be: a duplicate, an overwritten or a strange record."""
        return bool(
            self.duplicated or self.unexpected or self.unreadable or self.overwritten or self.regenerated
        )

    @property
    def verdict(self) -> Verdict:
        """FAIL if any task is lost or anything is damaged, UNKNOWN if nothing was read.

        UNKNOWN too if the state before the retry or a full retry was not looked at. Failed requests are
        terminal: they are judged as an error rate, not here.
        """
        if self.damaged:
            return Verdict.FAIL
        if not self.tasks or not self.records:
            return Verdict.UNKNOWN
        if self.lost:
            return Verdict.FAIL
        unseen = self.overwritten is None or self.regenerated is None
        return Verdict.UNKNOWN if unseen else Verdict.PASS


def check_batch(
    asked: bytes,
    *outputs: bytes,
    before_retry: bytes | None = None,
    after_full_retry: bytes | None = None,
    undisturbed: bytes | None = None,
) -> BatchReport:
    """Compare the input of a batch with its outputs (output file, and error file if there is one).

    Records are joined on custom_id; order means nothing, and equal texts of different ids are different
    tasks. `before_retry` is the output as it was when the runner had been killed, `after_full_retry` as
    it was after running a finished batch once more, `undisturbed` that of a run that nobody killed.
    Raises `InputRefused` if the input itself is not a batch.
    """
    ids = read_input(asked).ids
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
    """Return ids of records that were whole and final before and are not there as they were."""
    # A line without its newline was not yet written; a task that never ran may be run.
    there = Counter(record.content for record in after.records)
    final = [record for record in before.records if record.whole and not record.resubmit]
    return tuple(dict.fromkeys(record.custom_id for record in final if not there[record.content]))


def _changed(before: Results, after: Results) -> tuple[str, ...]:
    """Return ids of records that one has and the other has not, counted."""
    one = Counter((record.custom_id, record.content) for record in before.records)
    other = Counter((record.custom_id, record.content) for record in after.records)
    return tuple(dict.fromkeys(custom_id for custom_id, _ in ((one - other) + (other - one))))


def _mismatched(undisturbed: Results, single: Mapping[str, Result]) -> tuple[str, ...]:
    """Return ids whose answers differ; an id that either side has no answer for is not compared."""
    return tuple(
        record.custom_id
        for record in undisturbed.records
        if record.ok and (mine := single.get(record.custom_id)) and mine.ok and mine.text != record.text
    )
