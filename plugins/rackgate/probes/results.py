"""Results that were made elsewhere: a file, its digest, and whether it is still young enough."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rackgate.nouns.measurement import Reason
from rackgate.probes.probe import Answer, Asked, Probe
from rackgate.probes.reading import read_text


def answer_from_file(probe: Probe, asked: Asked, known: Container[str], answer: Answer) -> Answer:
    """Return what a file says of the node; one that is too old, or from the future, says nothing.

    Its age counts from `made_at` where the table tells it, else from the file's own time.
    """
    path = Path(probe.result.replace("{node}", asked.node))
    answer = replace(answer, result=str(path), asked=False)
    try:
        text = path.read_text("utf-8", "replace")
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError as error:
        return replace(answer, reason=Reason.ABSENT, detail=f"{path} cannot be read: {error.strerror}")
    answer = replace(answer, text=text)
    made = probe.made_at or written
    made = made if made.tzinfo else made.replace(tzinfo=UTC)
    age_s = (datetime.now(UTC) - made).total_seconds()
    whence = "made_at" if probe.made_at else "the file's time"
    told = f"{path} was made {made:%Y-%m-%dT%H:%MZ} ({whence})"
    if age_s > probe.max_age_s:
        old = f"{told}: {age_s / 3600:.1f} h ago, max_age_s allows {probe.max_age_s / 3600:g} h"
        return replace(answer, reason=Reason.STALE, detail=old)
    if age_s < -60:
        return replace(answer, reason=Reason.STALE, detail=f"{told}, which is yet to come")
    found = read_text(probe, asked, text, known, answer)
    values = (replace(one, detail=f"{one.detail}; {told}".lstrip("; ")) for one in found.values)
    return replace(found, values=tuple(values))
