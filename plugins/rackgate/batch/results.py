"""The output of a batch: one terminal record per task, and what each of them says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackgate.batch.jsonl import canonical, read_json_lines

_NOT_DONE = frozenset({"batch_expired", "batch_cancelled"})
_OK_STATUS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One record of an output. `label` is `ok` or says how it failed, such as `failed 400`.

    `resubmit` is true for a record that says that its task never ran (expired, cancelled): the only
    kind of failure that a retry may send again. `text` is the answer, None if there is none.
    """

    custom_id: str
    line: int
    label: str
    resubmit: bool
    text: str | None
    message: str
    content: str
    """The whole record in canonical form, for comparing."""
    whole: bool = True

    @property
    def ok(self) -> bool:
        """True if the record holds an answer."""
        return self.label == "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All records of an output in its order, and the numbers of the lines that are none."""

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
    """What a finished batch came to: `ok` only if every task has an answer.

    `completed` and `failed` count records, `total` what the batch says it was given. `keep` are ids
    with an answer, `resubmit` ids whose task never ran; a real refusal (a 400, say) is in neither.
    """

    ok: bool
    completed: int
    failed: int
    total: int
    first_error: str
    keep: tuple[str, ...]
    resubmit: tuple[str, ...]


def classify(record: Mapping[str, Any]) -> str:
    """Return `ok`, or how the record failed: by its status, by no response, or by no choice in it.

    Success is an error of null, a status of 200 and a body with at least one choice (for embeddings:
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
    """Return the text of every answer by custom_id; the order of lines means nothing."""
    records = read_results(output).records
    return {record.custom_id: record.text for record in records if record.ok and record.text is not None}


def summarise_batch(
    output: bytes = b"", errors: bytes = b"", *, batch: Mapping[str, Any] | None = None
) -> BatchSummary:
    """Return what output file, error file and the batch's own `request_counts` say together.

    A status of `completed` means finished, not successful. Either file may be missing (empty).
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
        label=classify(record),
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
