"""A deliberately simple batch command: `python -m rackgate.simulator.batch_runner --input F --output F ...`.

Reads and writes the JSON lines of OpenAI's batch API, with one terminal record per `custom_id`. A retry after
a kill continues: it drops a torn last line and keeps finished records. `--defect` makes the retry go wrong,
which proves that the checker detects it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rackgate.simulator.scenarios import BATCH_DEFECTS

_CONCURRENCY = 4
_WRONG_RECORDS = 3
_ATTEMPTS = 5
_TIMEOUT_S = 120.0

Line = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run the batch and return 0."""
    parser = argparse.ArgumentParser(prog="rackgate.simulator.batch_runner")
    parser.add_argument("--defect", choices=BATCH_DEFECTS, default="none")
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--url", required=True, help="scheme://host:port of an OpenAI-compatible server")
    parser.add_argument("--model", required=True, help="for lines that name none")
    options = parser.parse_args(arguments)
    if options.defect == "mute":
        return 0
    tasks = [json.loads(line) for line in options.input.read_text(encoding="utf-8").splitlines() if line]
    client = _Client(options.url, options.model)
    is_retry = options.output.exists()
    finished = _finished(options.output) if is_retry else []
    done = {record["custom_id"] for record in finished}
    left = [task for task in tasks if task["custom_id"] not in done]
    if is_retry and options.defect == "duplicate":
        redone = {record["custom_id"] for record in finished[-_WRONG_RECORDS:]}
        left = [task for task in tasks if task["custom_id"] in redone] + left
    elif is_retry and options.defect == "lose":
        left = left[_WRONG_RECORDS:]
    elif is_retry and options.defect == "overwrite":
        _overwrite(options.output, finished, tasks, client)
    elif is_retry and options.defect == "invent":
        left = left + [{**task, "custom_id": f"{task['custom_id']}-again"} for task in left[:_WRONG_RECORDS]]
    elif is_retry and options.defect == "fail":
        left = [{**task, "url": "/v1/unknown"} for task in left[:_WRONG_RECORDS]] + left[_WRONG_RECORDS:]
    with options.output.open("ab") as output:
        _run(left, client, output.fileno())
    return 0


class _Client:
    """Sends each task over its own connection."""

    def __init__(self, url: str, model: str) -> None:
        parts = urlsplit(url)
        self._host = parts.netloc
        self._prefix = parts.path.rstrip("/")
        self._class = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._model = model

    def record(self, task: Line) -> Line:
        """Return the task's terminal record, an answer or the error of the last attempt."""
        error = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(0.2 * attempt)
            try:
                status, request_id, body = self._post(task)
            except (OSError, http.client.HTTPException, ValueError) as problem:
                error = f"{type(problem).__name__}: {problem}"
                continue
            if status < 500 and status != 429:
                response = {"status_code": status, "request_id": request_id, "body": body}
                return self._line(task, response, None)
            error = f"HTTP {status}"
        return self._line(task, None, {"code": "server_error", "message": error})

    def _post(self, task: Line) -> tuple[int, str, Any]:
        body = json.dumps({"model": self._model, **task["body"], "stream": False})
        path = self._prefix + task.get("url", "/v1/chat/completions")
        connection = self._class(self._host, timeout=_TIMEOUT_S)
        try:
            connection.request("POST", path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.getheader("x-request-id", ""), json.loads(answer.read())
        finally:
            connection.close()

    @staticmethod
    def _line(task: Line, response: Line | None, error: Line | None) -> Line:
        return {
            "id": f"batch_req_{task['custom_id']}",
            "custom_id": task["custom_id"],
            "response": response,
            "error": error,
        }


def _run(tasks: list[Line], client: _Client, output: int) -> None:
    with ThreadPoolExecutor(_CONCURRENCY) as pool:
        waiting = list(reversed(tasks))
        in_flight: set[Future[Line]] = set()
        while waiting or in_flight:
            while waiting and len(in_flight) < _CONCURRENCY:
                in_flight.add(pool.submit(client.record, waiting.pop()))
            done, in_flight = wait(in_flight, return_when=FIRST_COMPLETED)
            for future in done:
                os.write(output, _encoded(future.result()))
                os.fdatasync(output)


def _finished(output: Path) -> list[Line]:
    """Return the whole records of the last run, and cut off a torn record."""
    whole, separator, torn = output.read_bytes().rpartition(b"\n")
    if torn:
        os.truncate(output, len(whole) + len(separator))
    return [json.loads(line) for line in whole.splitlines()]


def _overwrite(output: Path, finished: list[Line], tasks: list[Line], client: _Client) -> None:
    """Replace the first finished records by different answers."""
    by_id = {task["custom_id"]: task for task in tasks}
    for index, record in enumerate(finished[:_WRONG_RECORDS]):
        task = by_id[record["custom_id"]]
        messages = [*task["body"].get("messages", []), {"role": "user", "content": "again"}]
        finished[index] = client.record({**task, "body": {**task["body"], "messages": messages}})
    output.write_bytes(b"".join(map(_encoded, finished)))


def _encoded(record: Line) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


if __name__ == "__main__":
    raise SystemExit(main())
