"""Which nodes a probe asked, and what came of it: shown beside the rows that it left unmet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rackgate_reports.evidence import number_of
from rackgate_reports.formatting import clip, duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rackgate_reports.digest.overview import Trouble
    from rackgate_reports.evidence import RunEvidence


_PREFIX = "probe."
_MOST = 6


def asked_lines(run: RunEvidence, trouble: Trouble) -> list[str]:
    """Return a line for each node that was asked for the rows of a trouble; none if no probe was."""
    first = trouble.rows[0]
    if not first.metric.startswith(_PREFIX):
        return []
    name = first.metric.removeprefix(_PREFIX).partition(".")[0]
    nodes = {row.entity.partition("/")[0] for row in trouble.rows} | {"rack"}
    asked = [
        record
        for record in run.of("probe")
        if (record.get("probe"), record.get("stage")) == (name, trouble.stage)
        and str(record.get("node")) in nodes
    ]
    more = [f"and {len(asked) - _MOST} more nodes"] if len(asked) > _MOST else []
    return [_line(record) for record in asked[:_MOST]] + more


def _line(record: Mapping[str, Any]) -> str:
    node = clip(record.get("node"), 60)
    if record.get("result"):
        digest = str(record.get("digest") or "none")[:12]
        return f"{node}: result from {clip(record.get('result'), 160)}, sha256 {digest}"
    if not record.get("asked"):
        return f"{node}: not asked"
    answered = "answered" if record.get("answered") else "gave no value"
    status, took = record.get("status"), duration(number_of(record.get("duration_s")))
    how = (
        f"{'did not end' if status is None else f'status {status}'}, {took}; {record.get('log') or 'no log'}"
    )
    return f"{node} {answered}: {clip(record.get('command'), 160)} ({how})"
