"""The exercise of a batch system: kill its runner half-way, run it again, once more, and check."""

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
_PLACEHOLDERS = ("input", "output", "url", "model")
_TOO_LATE = (
    "the runner had written everything before it could be killed: it writes all at once at the end, "
    "or the batch is too small for its speed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchExercise:
    """What came of an exercise. Without a `report` nothing was shown: `reason` and `detail` say why.

    `kill_proven` is true if the runner died of our signal with some, but not all, of its output
    written, and nothing of it went on writing. `killed_after` is the number of whole lines then;
    `exit_codes` are those of the killed run, the retry and the full retry, as far as they came.
    `generations` is how many requests the full retry made the engine serve, if that can be counted.
    `folder` holds input, outputs and logs.
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


class _Unproven(Exception):
    """The exercise showed nothing, and why."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(slots=True, kw_only=True)
class _Course:
    """What happened so far."""

    folder: Path
    command: tuple[str, ...]
    asked: bytes
    tasks: int
    deadline: float = 0.0
    kill_proven: bool = False
    killed_after: int = 0
    exit_codes: tuple[int | None, ...] = ()
    generations: int | None = None

    @property
    def output(self) -> bytes:
        """The output as it is on disk now; empty if there is none."""
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
    """Run `command` on a fresh batch, kill its process group when `kill_at` of the lines exist, retry.

    `{input}`, `{output}`, `{url}` and `{model}` in the command are filled in. After the retry a full
    retry of the finished batch must change nothing. `served` tells how many requests the engine has
    served so far, for counting what the full retry cost. The whole takes at most `deadline_s`. Raises
    nothing for what the system did; ValueError for arguments that make no exercise.
    """
    if tasks < 2 or not 0.0 < kill_at < 1.0:
        raise ValueError("an exercise has at least 2 tasks and a kill inside them (0 < kill_at < 1)")
    began = time.monotonic()
    course = _prepared(command, url=url, model=model, workdir=workdir, tasks=tasks, seed=seed)
    course.deadline = began + deadline_s
    report, reason, detail = None, None, ""
    try:
        _check_command(command)
        report = _exercise(course, min(tasks - 1, max(1, math.ceil(kill_at * tasks))), served)
    except _Unproven as nothing:
        reason, detail = nothing.reason, nothing.detail
    return BatchExercise(
        report=report,
        reason=reason,
        detail=detail,
        seconds=time.monotonic() - began,
        kill_proven=course.kill_proven,
        killed_after=course.killed_after,
        exit_codes=course.exit_codes,
        generations=course.generations,
        folder=str(course.folder),
    )


def _prepared(
    command: Sequence[str], *, url: str, model: str, workdir: Path, tasks: int, seed: int
) -> _Course:
    """Make a fresh folder with the input in it, and fill in the command."""
    workdir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="batch-", dir=workdir.resolve()))
    asked = make_input(tasks=tasks, model=model, seed=seed)
    (folder / "input.jsonl").write_bytes(asked)
    values = {
        "input": str(folder / "input.jsonl"),
        "output": str(folder / "output.jsonl"),
        "url": url,
        "model": model,
    }
    filled = tuple(_fill(part, values) for part in command)
    return _Course(folder=folder, command=filled, asked=asked, tasks=tasks)


def make_input(*, tasks: int, model: str, seed: int) -> bytes:
    """Return a JSONL batch of chat requests with unique ids in no order; one text in four is a repeat.

    Equal texts under different ids catch whoever joins or removes duplicates by text.
    """
    generator = random.Random(seed)
    ids = [f"task-{seed}-{number:05d}" for number in range(tasks)]
    generator.shuffle(ids)
    texts = [f"Say the number {generator.randrange(10**6)}." for _ in range(max(1, tasks - tasks // 4))]
    lines = []
    for place, custom_id in enumerate(ids):
        body = {
            "model": model,
            "messages": [{"role": "user", "content": texts[place % len(texts)]}],
            "max_tokens": 16,
            "temperature": 0,
        }
        lines.append({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _exercise(course: _Course, kill_after: int, served: Callable[[], int | None] | None) -> BatchReport:
    before = _killed_run(course, kill_after)
    retry_code = _whole_run(course, "retry")
    finished = course.output
    (course.folder / "output.after-retry.jsonl").write_bytes(finished)
    if not finished.strip() and not before.strip():
        raise _Unproven(Reason.ABSENT, "the runner never wrote an output: nothing was read")
    report = check_batch(course.asked, finished, before_retry=before)
    if report.lost and retry_code != 0 and not report.damaged:
        raise _Unproven(
            Reason.DIED,
            f"the retry ended with status {retry_code} and {len(report.lost)} tasks open: it says itself "
            f"that it is not done; see {course.folder}",
        )
    count = served() if served is not None else None
    again_code = _whole_run(course, "full-retry")
    counted = served() if served is not None else None
    if count is not None and counted is not None:
        course.generations = counted - count
    # A full retry that broke shows nothing: what it would have generated stays unknown.
    after = course.output if again_code == 0 else None
    return check_batch(course.asked, finished, before_retry=before, after_full_retry=after)


def _killed_run(course: _Course, kill_after: int) -> bytes:
    """Run until enough lines exist, kill, and return the output as it was left."""
    with _started(course, "killed-run") as process:
        while course.output.count(b"\n") < kill_after and not _ended(process):
            if time.monotonic() > course.deadline:
                raise _Unproven(Reason.TIMEOUT, f"{kill_after} lines of output did not come in time")
            time.sleep(_POLL_S)
    code = process.returncode
    course.exit_codes = (code,)
    before = course.output
    (course.folder / "output.before-retry.jsonl").write_bytes(before)
    course.killed_after = before.count(b"\n")
    if code != -signal.SIGKILL:
        if code != 0:
            raise _Unproven(Reason.DIED, f"the runner ended with status {code} before it could be killed")
        if not before.strip():
            raise _Unproven(Reason.ABSENT, "the runner ended with status 0 and wrote no output")
        raise _Unproven(Reason.TOO_FEW, _TOO_LATE)
    if course.killed_after >= course.tasks:
        raise _Unproven(Reason.TOO_FEW, _TOO_LATE)
    until = time.monotonic() + _QUIET_S
    while time.monotonic() < until:
        if course.output != before:
            raise _Unproven(
                Reason.INSTRUMENT, "the output went on after the kill: something of the runner survived it"
            )
        time.sleep(_POLL_S)
    course.kill_proven = True
    return before


def _whole_run(course: _Course, label: str) -> int:
    """Run to the end and return the exit status."""
    with _started(course, label) as process:
        while not _ended(process):
            if time.monotonic() > course.deadline:
                raise _Unproven(Reason.TIMEOUT, f"the {label} did not end in time")
            time.sleep(_POLL_S)
    course.exit_codes = (*course.exit_codes, process.returncode)
    return process.returncode


@contextlib.contextmanager
def _started(course: _Course, label: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command in a process group of its own; leaving kills the whole group."""
    with (course.folder / f"{label}.log").open("wb") as log:
        try:
            process = subprocess.Popen(
                course.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except PermissionError as error:
            raise _Unproven(Reason.NO_PERMISSION, f"the batch command may not run: {error}") from None
        except OSError as error:
            raise _Unproven(Reason.TOOL_MISSING, f"the batch command does not run: {error}") from None
    try:
        yield process
    finally:
        # The leader is not reaped yet, dead or alive, so its number still names this group and no other.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process is over, without reaping it."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _check_command(command: Sequence[str]) -> None:
    for name in ("{input}", "{output}"):
        if not any(name in part for part in command):
            raise _Unproven(Reason.NOT_CONFIGURED, f"the batch command does not name {name}")


def _fill(part: str, values: dict[str, str]) -> str:
    for name in _PLACEHOLDERS:
        part = part.replace("{" + name + "}", values[name])
    return part
