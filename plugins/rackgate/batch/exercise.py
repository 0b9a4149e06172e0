"""Exercise of a batch system: kill its runner half-way, retry the batch twice, and check the output."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rackgate.batch.checker import BatchReport, check_batch
from rackgate.nouns.measurement import Reason

_POLL_S = 0.005
_QUIET_S = 0.3
_TOO_LATE = (
    "the runner had written everything before it could be killed: it writes all at once at the end, "
    "or the batch is too small for its speed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchExercise:
    """The result of an exercise. Without a `report` it showed nothing, and `reason` and `detail` say why.

    `kill_proven` is true if the runner died of SIGKILL with a part of its output written, and none of its
    processes wrote more. `killed_after` is the number of whole lines at that time. `exit_codes` are those
    of the killed run, the retry and the full retry, as far as these ran. `generations` is the number of
    requests that the engines served for the full retry, if it is known. `folder` holds input, outputs and
    logs.
    """

    report: BatchReport | None
    reason: Reason | None = None
    detail: str = ""
    seconds: float = 0.0
    kill_proven: bool = False
    killed_after: int = 0
    exit_codes: tuple[int | None, ...] = ()
    generations: int | None = None
    folder: str = ""


class _Inconclusive(Exception):
    """The exercise showed nothing."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(slots=True, kw_only=True)
class _Exercise:
    """An exercise in progress."""

    folder: Path
    command: tuple[str, ...]
    batch_input: bytes
    tasks: int
    served: Callable[[], int | None]
    deadline: float
    kill_proven: bool = False
    killed_after: int = 0
    exit_codes: tuple[int | None, ...] = ()
    generations: int | None = None

    @property
    def output(self) -> bytes:
        """The output on disk at this time; empty without a file."""
        try:
            return (self.folder / "output.jsonl").read_bytes()
        except OSError:
            return b""


def exercise_batch(
    command: Sequence[str],
    *,
    url: str,
    model: str,
    workdir: Path,
    tasks: int = 40,
    kill_at: float = 0.5,
    seed: int = 1,
    deadline_s: float = 120.0,
    served: Callable[[], int | None] | None = None,
) -> BatchExercise:
    """Run `command` on a new batch, kill it when `kill_at` of the output lines exist, and retry twice.

    The command may contain `{input}`, `{output}`, `{url}` and `{model}`. The second retry, of the finished
    batch, must change nothing. `served` returns the number of requests that the engines have served so far.
    The exercise takes at most `deadline_s`. Raises ValueError for wrong arguments, and nothing for failures
    of the system.
    """
    if tasks < 2 or not 0.0 < kill_at < 1.0:
        raise ValueError("an exercise has at least 2 tasks and a kill inside them (0 < kill_at < 1)")
    began = time.monotonic()
    workdir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="batch-", dir=workdir.resolve()))
    batch_input = make_input(tasks=tasks, model=model, seed=seed)
    (folder / "input.jsonl").write_bytes(batch_input)
    paths = {"input": f"{folder}/input.jsonl", "output": f"{folder}/output.jsonl"}
    values = {**paths, "url": url, "model": model}
    exercise = _Exercise(
        folder=folder,
        command=tuple(_fill(part, values) for part in command),
        batch_input=batch_input,
        tasks=tasks,
        served=served or (lambda: None),
        deadline=began + deadline_s,
    )
    report, reason, detail = None, None, ""
    try:
        _check_command(command)
        report = _kill_and_retry(exercise, min(tasks - 1, max(1, math.ceil(kill_at * tasks))))
    except _Inconclusive as nothing:
        reason, detail = nothing.reason, nothing.detail
    return BatchExercise(
        report=report,
        reason=reason,
        detail=detail,
        seconds=time.monotonic() - began,
        kill_proven=exercise.kill_proven,
        killed_after=exercise.killed_after,
        exit_codes=exercise.exit_codes,
        generations=exercise.generations,
        folder=str(exercise.folder),
    )


def make_input(*, tasks: int, model: str, seed: int) -> bytes:
    """Return a JSONL batch of chat requests with unique shuffled ids; one text in four is a repeat.

    Equal texts under different ids reveal a system that joins or removes duplicates by text.
    """
    generator = random.Random(seed)
    ids = [f"task-{seed}-{number:05d}" for number in range(tasks)]
    generator.shuffle(ids)
    texts = [f"Say the number {generator.randrange(10**6)}." for _ in range(max(1, tasks - tasks // 4))]
    lines = []
    for index, custom_id in enumerate(ids):
        body = {
            "model": model,
            "messages": [{"role": "user", "content": texts[index % len(texts)]}],
            "max_tokens": 16,
            "temperature": 0,
        }
        lines.append({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _kill_and_retry(exercise: _Exercise, kill_after: int) -> BatchReport:
    before = _run_and_kill(exercise, kill_after)
    retry_code = _run_to_end(exercise, "retry")
    finished = exercise.output
    (exercise.folder / "output.after-retry.jsonl").write_bytes(finished)
    if not finished.strip() and not before.strip():
        raise _Inconclusive(Reason.ABSENT, "the runner never wrote an output: nothing was read")
    report = check_batch(exercise.batch_input, finished, before_retry=before)
    if report.lost and retry_code != 0 and not report.damaged:
        raise _Inconclusive(
            Reason.DIED,
            f"the retry ended with status {retry_code} and {len(report.lost)} tasks open: it says itself "
            f"that it is not done; see {exercise.folder}",
        )
    served_before = exercise.served()
    full_retry_code = _run_to_end(exercise, "full-retry")
    served_after = exercise.served()
    if served_before is not None and served_after is not None:
        exercise.generations = served_after - served_before
    # A full retry that failed shows nothing.
    after = exercise.output if full_retry_code == 0 else None
    return check_batch(exercise.batch_input, finished, before_retry=before, after_full_retry=after)


def _run_and_kill(exercise: _Exercise, kill_after: int) -> bytes:
    """Run until enough lines exist, kill the runner, and return its output."""
    with _started(exercise, "killed-run") as process:
        while exercise.output.count(b"\n") < kill_after and not _has_ended(process):
            if time.monotonic() > exercise.deadline:
                raise _Inconclusive(Reason.TIMEOUT, f"{kill_after} lines of output did not come in time")
            time.sleep(_POLL_S)
    code = process.returncode
    exercise.exit_codes = (code,)
    before = exercise.output
    (exercise.folder / "output.before-retry.jsonl").write_bytes(before)
    exercise.killed_after = before.count(b"\n")
    if code != -signal.SIGKILL:
        if code != 0:
            raise _Inconclusive(Reason.DIED, f"the runner ended with status {code} before it could be killed")
        if not before.strip():
            raise _Inconclusive(Reason.ABSENT, "the runner ended with status 0 and wrote no output")
        raise _Inconclusive(Reason.TOO_FEW, _TOO_LATE)
    if exercise.killed_after >= exercise.tasks:
        raise _Inconclusive(Reason.TOO_FEW, _TOO_LATE)
    until = time.monotonic() + _QUIET_S
    while time.monotonic() < until:
        if exercise.output != before:
            raise _Inconclusive(
                Reason.INSTRUMENT, "the output went on after the kill: something of the runner survived it"
            )
        time.sleep(_POLL_S)
    exercise.kill_proven = True
    return before


def _run_to_end(exercise: _Exercise, label: str) -> int:
    """Run until the command ends and return its exit status."""
    with _started(exercise, label) as process:
        while not _has_ended(process):
            if time.monotonic() > exercise.deadline:
                raise _Inconclusive(Reason.TIMEOUT, f"the {label} did not end in time")
            time.sleep(_POLL_S)
    exercise.exit_codes = (*exercise.exit_codes, process.returncode)
    return process.returncode


@contextlib.contextmanager
def _started(exercise: _Exercise, label: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command in its own process group; leaving kills the whole group."""
    with (exercise.folder / f"{label}.log").open("wb") as log:
        try:
            process = subprocess.Popen(
                exercise.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except PermissionError as error:
            raise _Inconclusive(Reason.NO_PERMISSION, f"the batch command may not run: {error}") from None
        except OSError as error:
            raise _Inconclusive(Reason.TOOL_MISSING, f"the batch command does not run: {error}") from None
    try:
        yield process
    finally:
        # The leader, dead or alive, is not reaped yet, so its pid still names this group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended, without reaping it."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _check_command(command: Sequence[str]) -> None:
    for name in ("{input}", "{output}"):
        if not any(name in part for part in command):
            raise _Inconclusive(Reason.NOT_CONFIGURED, f"the batch command does not name {name}")


def _fill(part: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        part = part.replace("{" + name + "}", value)
    return part
