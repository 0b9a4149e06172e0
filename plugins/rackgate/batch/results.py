"""Reader of the output of a batch: one terminal record per task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackgate.batch.jsonl import canonical, read_json_lines

_NOT_DONE = frozenset({"batch_expired", "batch_cancelled"})
_OK_STATUS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A record of an output. `label` is `ok` or the failure, such as `failed 400`.

    `resubmit` is true if the task never ran (expired or cancelled); a retry may send only such failures
    again. `text` is the answer, if there is one.
    """

    custom_id: str
    line: int
    label: str
    resubmit: bool
    text: str | None
    message: str
    content: str
    """The whole record in canonical form, for comparisons."""
    whole: bool = True

    @property
    def ok(self) -> bool:
        """Whether the record holds an answer."""
        return self.label == "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The records of an output in order, and the numbers of the lines without a record."""

    records: tuple[Result, ...]
    unreadable: tuple[int, ...]

    @property
    def by_id(self) -> dict[str, tuple[Result, ...]]:
        """The records of each custom_id, in order."""
        joined: dict[str, tuple[Result, ...]] = {}
        for record in self.records:
            joined[record.custom_id] = (*joined.get(record.custom_id, ()), record)
        return joined


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSummary:
    """The outcome of a finished batch; `ok` only if every task has an answer.

    `completed` and `failed` count records, `total` is the batch's own number of tasks. `keep` are ids with an
    answer, `resubmit` ids of tasks that never ran; a refusal such as a 400 is in neither.
    """

    ok: bool
    completed: int
    failed: int
    total: int
    first_error: str
    keep: tuple[str, ...]
    resubmit: tuple[str, ...]


def _label(record: Mapping[str, Any]) -> str:
    """Return `ok` or the failure of a record: its status, no response, or no choice.

    Success is an error of null, a status of 200 and a body with at least one choice (for embeddings, at least
    one item of data).
    """
    response, error = record.get("response"), record.get("error")
    if not isinstance(response, dict):
        return "failed (no response)"
    status, body = response.get("status_code"), response.get("body")
    if status != _OK_STATUS:
        return f"failed {status}"
    if error is not None:
        return "failed 200 with error"
    if not isinstance(body, dict) or not (body.get("choices") or body.get("data")):
        return "failed 200 without choices"
    return "ok"


def read_results(data: bytes) -> Results:
    """Return the records of a JSONL output; a line without a custom_id is unreadable."""
    found = read_json_lines(data)
    unreadable, records = list(found.unreadable), []
    for line in found.lines:
        custom_id = line.value.get("custom_id")
        if isinstance(custom_id, str) and custom_id:
            records.append(_result(custom_id, line.number, line.value, whole=line.whole))
        else:
            unreadable.append(line.number)
    return Results(records=tuple(records), unreadable=tuple(sorted(unreadable)))


def answers(output: bytes) -> dict[str, str]:
    """Return the text of each answer by custom_id."""
    records = read_results(output).records
    return {record.custom_id: record.text for record in records if record.ok and record.text is not None}


def summarise_batch(
    output: bytes = b"", errors: bytes = b"", *, batch: Mapping[str, Any] | None = None
) -> BatchSummary:
    """Summarise the output file, the error file and the batch's own `request_counts`.

    A batch of status `completed` is finished, not successful. Either file may be empty.
    """
    kept, refused = read_results(output), read_results(errors)
    records = (*kept.records, *refused.records)
    done = tuple(record.custom_id for record in records if record.ok)
    failed = tuple(record for record in records if not record.ok)
    counts = (batch or {}).get("request_counts") or {}
    total = counts.get("total", len(records))
    return BatchSummary(
        ok=bool(done) and len(done) == total == len(records) and not (kept.unreadable or refused.unreadable),
        completed=len(done),
        failed=len(failed),
        total=total,
        first_error=next((record.message for record in failed if record.message), ""),
        keep=done,
        resubmit=tuple(record.custom_id for record in failed if record.resubmit),
    )


def _result(custom_id: str, number: int, record: Mapping[str, Any], *, whole: bool) -> Result:
    error = record.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return Result(
        custom_id=custom_id,
        line=number,
        label=_label(record),
        resubmit=isinstance(code, str) and code in _NOT_DONE,
        text=_text(_body(record)),
        message=_message(error) or _message(_body(record).get("error")),
        content=canonical(record),
        whole=whole,
    )


def _body(record: Mapping[str, Any]) -> Mapping[str, Any]:
    response = record.get("response")
    body = response.get("body") if isinstance(response, dict) else None
    return body if isinstance(body, dict) else {}


def _message(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


def _text(body: Mapping[str, Any]) -> str | None:
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict):
        return None
    message = first.get("message")
    text = message.get("content") if isinstance(message, dict) else first.get("text")
    return text if isinstance(text, str) else None
