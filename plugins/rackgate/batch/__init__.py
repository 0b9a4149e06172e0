"""Is a retry of a batch safe: the checker, the exercise that kills a runner, and a runner that is."""

from __future__ import annotations

from rackgate.batch.checker import BatchReport, check_batch
from rackgate.batch.exercise import BatchExercise, exercise_batch
from rackgate.batch.results import (
    BatchSummary,
    Result,
    Results,
    answers,
    classify,
    read_results,
    summarise_batch,
)
from rackgate.batch.tasks import BatchInput, InputRefused, Task, read_input
from rackgate.engines.retry_after import retry_after_s

__all__ = [
    "BatchExercise",
    "BatchInput",
    "BatchReport",
    "BatchSummary",
    "InputRefused",
    "Result",
    "Results",
    "Task",
    "answers",
    "check_batch",
    "classify",
    "exercise_batch",
    "read_input",
    "read_results",
    "retry_after_s",
    "summarise_batch",
]
