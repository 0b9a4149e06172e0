"""The input of a batch: one request per line, each with a unique id."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackgate.batch.jsonl import JsonLine, canonical, read_json_lines


class BatchRefused(Exception):
    """A refused batch, of which nothing was sent; `exit_code` is the runner's exit status."""

    exit_code = 2


class InputRefused(BatchRefused):
    """A refused input, with all its problems in one message.

    `duplicates` maps each repeated custom_id to its line numbers.
    """

    def __init__(self, problems: tuple[str, ...], duplicates: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.duplicates = duplicates


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A request of a batch; `line` is its line number in the input, from 1."""

    custom_id: str
    method: str
    url: str
    body: Mapping[str, Any]
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInput:
    """The tasks of an input in order; warnings are `BOM` and `CRLF`."""

    tasks: tuple[Task, ...]
    warnings: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The custom_id of every task, in order."""
        return tuple(task.custom_id for task in self.tasks)

    def digest(self) -> str:
        """Return the SHA-256 of the tasks in hexadecimal, independent of the order of lines and keys."""
        tasks = sorted(canonical([task.custom_id, task.method, task.url, task.body]) for task in self.tasks)
        return hashlib.sha256("\n".join(tasks).encode()).hexdigest()


def read_input(data: bytes) -> BatchInput:
    """Return the tasks of a JSONL input. Raises `InputRefused` with all problems."""
    found = read_json_lines(data)
    problems = [f"line {number} is not a JSON object" for number in found.unreadable]
    tasks: list[Task] = []
    places: dict[str, list[int]] = {}
    for line in found.lines:
        task = _task(line, problems)
        if task is not None:
            tasks.append(task)
            places.setdefault(task.custom_id, []).append(line.number)
    duplicates = {custom_id: tuple(lines) for custom_id, lines in places.items() if len(lines) > 1}
    for custom_id, lines in duplicates.items():
        problems.append(f"duplicate custom_id {custom_id!r} in lines {', '.join(map(str, lines))}")
    if not found.lines and not problems:
        problems.append("the input holds no task")
    if problems:
        raise InputRefused(tuple(problems), duplicates)
    return BatchInput(tasks=tuple(tasks), warnings=found.warnings)


def _task(line: JsonLine, problems: list[str]) -> Task | None:
    custom_id, method = line.value.get("custom_id"), line.value.get("method", "POST")
    url, body = line.value.get("url"), line.value.get("body")
    before = len(problems)
    if not isinstance(custom_id, str) or not custom_id:
        problems.append(f"line {line.number} has no custom_id")
        custom_id = ""
    if method != "POST":
        problems.append(f"line {line.number}: method {method!r} is not POST")
    if not isinstance(url, str) or not url.startswith("/"):
        problems.append(f"line {line.number}: url {url!r} is not a path such as /v1/chat/completions")
        url = ""
    if not isinstance(body, dict):
        problems.append(f"line {line.number}: body is not a JSON object")
        body = {}
    if len(problems) > before:
        return None
    return Task(custom_id=custom_id, method="POST", url=url, body=body, line=line.number)
