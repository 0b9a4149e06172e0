"""A batch runner that may crash at any point: at least once on the wire, exactly once in the file.

`python -m rackgate.batch.runner --input IN.jsonl --output OUT.jsonl --url URL --model M`

A second run continues the first. The runner retries refused and broken requests. A task without a final
answer stays open: it is not written, and the exit status says so.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from rackgate.batch.input_file import BatchRefused, Task, read_input
from rackgate.batch.output_file import OutputFile
from rackgate.engines.client import client_settings
from rackgate.engines.retry_after import retry_after_s, server_time, wait_s
from rackgate.engines.route_options import add_route_options, route_of
from rackgate.nouns.route import DIRECT, Route

_EXIT_DONE = 0
_EXIT_OPEN = 1
_EXIT_REFUSED = 2
_RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    """Files, endpoint and retries of a run. `url` is scheme://host:port[/prefix], without /v1.

    `model` is the default of tasks without a model. A task is sent at most `attempts` times, with waits of
    at most `retry_cap_s`. `journal_path` (default: the output's name + `.journal`) binds the output to its
    input. `api_key_env` names the environment variable of the API key.
    """

    input_path: Path
    output_path: Path
    url: str
    model: str
    concurrency: int = 8
    journal_path: Path | None = None
    attempts: int = 8
    retry_cap_s: float = 60.0
    request_timeout_s: float = 600.0
    api_key_env: str | None = None
    route: Route = DIRECT


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOutcome:
    """Tasks at the end of a run: `kept` are from earlier runs, `written` new, `open` without a final answer.

    `sent` counts requests on the wire; `reason` is the last reason for which a task stayed open.
    """

    tasks: int
    kept: int
    written: int
    sent: int
    open: tuple[str, ...]
    reason: str = ""
    warnings: tuple[str, ...] = ()


def run_batch(options: RunnerOptions, *, transport: httpx.AsyncBaseTransport | None = None) -> RunnerOutcome:
    """Run the open tasks of a batch; return when each task is written or given up for now.

    Before anything is sent, raises a subclass of `BatchRefused` or OSError for a file.
    """
    batch = read_input(options.input_path.read_bytes())
    journal = options.journal_path or options.output_path.with_name(options.output_path.name + ".journal")
    with OutputFile(options.output_path, journal, batch) as output:
        to_run = set(output.plan.to_run)
        runner = _Runner(options, output, transport)
        tasks = [task for task in batch.tasks if task.custom_id in to_run]
        if tasks:
            try:
                asyncio.run(runner.run(tasks))
            except ExceptionGroup as group:
                raise group.exceptions[0] from group
        return RunnerOutcome(
            tasks=len(batch.tasks),
            kept=len(output.plan.kept),
            written=runner.written,
            sent=runner.sent,
            open=tuple(runner.open),
            reason=runner.reason,
            warnings=batch.warnings,
        )


class _Runner:
    """Sends tasks concurrently; one writer brings their answers to disk."""

    def __init__(
        self, options: RunnerOptions, output: OutputFile, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        self._options = options
        self._output = output
        self._transport = transport
        self._answered: asyncio.Queue[tuple[bytes, asyncio.Event] | None] = asyncio.Queue()
        self.open: list[str] = []
        self.sent = 0
        self.written = 0
        self.reason = ""

    async def run(self, tasks: Sequence[Task]) -> None:
        """Send each task until its answer is written or its attempts are used up."""
        waiting = iter(tasks)
        workers = min(self._options.concurrency, len(tasks))
        async with self._client(workers) as client, asyncio.TaskGroup() as writing:
            writing.create_task(self._write())
            async with asyncio.TaskGroup() as working:
                for index in range(workers):
                    jitter = random.Random(f"{self._options.output_path.name}/{index}")
                    working.create_task(self._work(waiting, client, jitter))
            self._answered.put_nowait(None)

    def _client(self, connections: int) -> httpx.AsyncClient:
        options = self._options
        key = os.environ.get(options.api_key_env, "") if options.api_key_env else ""
        return httpx.AsyncClient(
            headers={
                **options.route.headers,
                "content-type": "application/json",
                **({"authorization": f"Bearer {key}"} if key else {}),
            },
            timeout=httpx.Timeout(connect=10.0, read=options.request_timeout_s, write=60.0, pool=None),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            **client_settings(options.url, options.route),
            transport=self._transport,
        )

    async def _write(self) -> None:
        """Write all waiting answers in one commit, again and again until the None that ends them."""
        ended = False
        while not ended:
            taken = [await self._answered.get()]
            while not self._answered.empty():
                taken.append(self._answered.get_nowait())
            ended = None in taken
            answers = [entry for entry in taken if entry is not None]
            if answers:
                await asyncio.to_thread(self._output.append, b"".join(line for line, _ in answers))
                self.written += len(answers)
            for _, on_disk in answers:
                on_disk.set()

    async def _work(self, waiting: Iterator[Task], client: httpx.AsyncClient, jitter: random.Random) -> None:
        for task in waiting:
            response = await self._final_response(task, client, jitter)
            if response is None:
                self.open.append(task.custom_id)
            else:
                # Wait for the disk, so that a crash costs at most `concurrency` answers.
                on_disk = asyncio.Event()
                self._answered.put_nowait((_record(task, response), on_disk))
                await on_disk.wait()

    async def _final_response(
        self, task: Task, client: httpx.AsyncClient, jitter: random.Random
    ) -> httpx.Response | None:
        """Send a task until its response is final; None if the last attempt's response is not."""
        options = self._options
        # ASCII, since a lone surrogate in a prompt has no UTF-8 but an escape.
        body = json.dumps({"model": options.model, **task.body}).encode("ascii")
        for attempt in range(options.attempts):
            asked_s = None
            self.sent += 1
            try:
                response = await client.post(_address(options.url, task.url), content=body)
            except httpx.RequestError as error:
                self.reason = f"{type(error).__name__}: {error}"
            else:
                if response.status_code not in _RETRIED_STATUSES:
                    return response
                self.reason = f"status {response.status_code}"
                now = server_time(response.headers.get("date"))
                asked_s = retry_after_s(response.headers.get("retry-after"), now)
            if attempt + 1 < options.attempts:
                share = jitter.uniform(0.5, 1.0)
                await asyncio.sleep(wait_s(asked_s, attempt, cap_s=options.retry_cap_s, jitter=share))
        return None


def _address(url: str, path: str) -> str:
    root = url.rstrip("/")
    return root.removesuffix("/v1") + path if path.startswith("/v1/") else root + path


def _record(task: Task, response: httpx.Response) -> bytes:
    body: Any
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        body = response.text
    line = {
        "id": "batch_req_" + hashlib.sha256(task.custom_id.encode("utf-8", "replace")).hexdigest()[:24],
        "custom_id": task.custom_id,
        "response": {
            "status_code": response.status_code,
            "request_id": response.headers.get("x-request-id", ""),
            "body": body,
        },
        "error": None,
    }
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rackgate.batch.runner", description="Run a JSONL batch, resumably."
    )
    parser.add_argument("--input", type=Path, required=True, help="requests, one JSON object per line")
    parser.add_argument("--output", type=Path, required=True, help="results, appended as they come")
    parser.add_argument("--url", required=True, help="engine or gateway, scheme://host:port[/prefix]")
    parser.add_argument("--model", required=True, help="model for tasks that name none")
    parser.add_argument("--concurrency", type=int, default=8, help="requests in flight (8)")
    parser.add_argument("--journal", type=Path, help="binds output to input (OUTPUT.journal)")
    parser.add_argument("--attempts", type=int, default=8, help="times that a task is sent at most (8)")
    parser.add_argument("--retry-cap-s", type=float, default=60.0, help="longest wait between two (60)")
    parser.add_argument("--request-timeout-s", type=float, default=600.0, help="longest silence (600)")
    parser.add_argument("--api-key-env", help="environment variable that holds the API key")
    add_route_options(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a batch from the command line and return the exit status.

    0: every task has a record. 1: some tasks are open, run again. 2: the input is refused. 3: another runner
    holds the output (409). 4: the output belongs to another input (422). 5: the output is damaged.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.concurrency < 1 or given.attempts < 1:
        parser.error("--concurrency and --attempts are at least 1")
    if not given.url.startswith(("http://", "https://")):
        parser.error(f"--url {given.url!r} does not begin with http:// or https://")
    try:
        route = route_of(given)
    except ValueError as error:
        parser.error(str(error))
    options = RunnerOptions(
        input_path=given.input,
        output_path=given.output,
        url=given.url,
        model=given.model,
        concurrency=given.concurrency,
        journal_path=given.journal,
        attempts=given.attempts,
        retry_cap_s=given.retry_cap_s,
        request_timeout_s=given.request_timeout_s,
        api_key_env=given.api_key_env,
        route=route,
    )
    try:
        outcome = run_batch(options)
    except BatchRefused as refusal:
        sys.stderr.write(f"refused, nothing sent: {refusal}\n")
        return refusal.exit_code
    except OSError as error:
        sys.stderr.write(f"refused: {error}\n")
        return _EXIT_REFUSED
    sys.stderr.write(
        f"{outcome.tasks} tasks: {outcome.kept} kept, {outcome.written} written, {len(outcome.open)} open"
        + (f" ({outcome.reason}); run again to go on\n" if outcome.open else "\n")
    )
    return _EXIT_OPEN if outcome.open else _EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
