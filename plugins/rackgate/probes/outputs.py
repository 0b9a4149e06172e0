"""Answers from the output of a program, or from a result file. Silence and unknown output are never good."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rackgate.hosts.runner import Ran
from rackgate.nouns.measurement import Reason
from rackgate.probes.parsers import PARSERS
from rackgate.probes.probe import Answer, BadOutput, Probe, ProbedNode, Value
from rackgate.probes.strict_json import shown

_PASSWORD = re.compile(r"password is required|a terminal is required|password for \w+:", re.IGNORECASE)


def answer_of(probe: Probe, node: ProbedNode, ran: Ran, known: Container[str], answer: Answer) -> Answer:
    """Return the answer with the values of a program's output.

    There is no value after a failure of the runner, a bad exit status (unless it is part of the tool's
    result), or without an output of the tool's shape.
    """
    answer = replace(answer, status=ran.status, text=ran.text, errors=ran.error)
    failure = _failure(probe, ran)
    if failure is not None:
        hint = probe.install if failure[0] is Reason.TOOL_MISSING else _by_hand(answer)
        return replace(answer, reason=failure[0], detail=failure[1], hint=hint)
    found = read_text(probe, node, ran.text, known, answer)
    return found if found.answered else replace(found, hint=_by_hand(answer))


def answer_from_file(probe: Probe, node: ProbedNode, known: Container[str], answer: Answer) -> Answer:
    """Return the answer with the values of a result file; a file that is too old or from the future has none.

    Its age counts from `made_at` in the probe's table, else from the time of the file.
    """
    path = Path(probe.result.replace("{node}", node.name))
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
    time_source = "made_at" if probe.made_at else "the file's time"
    origin = f"{path} was made {made:%Y-%m-%dT%H:%MZ} ({time_source})"
    if age_s > probe.max_age_s:
        too_old = f"{origin}: {age_s / 3600:.1f} h ago, max_age_s allows {probe.max_age_s / 3600:g} h"
        return replace(answer, reason=Reason.STALE, detail=too_old)
    if age_s < -60:
        return replace(answer, reason=Reason.STALE, detail=f"{origin}, which is yet to come")
    found = read_text(probe, node, text, known, answer)
    values = (replace(value, detail=f"{value.detail}; {origin}".lstrip("; ")) for value in found.values)
    return replace(found, values=tuple(values))


def read_text(probe: Probe, node: ProbedNode, text: str, known: Container[str], answer: Answer) -> Answer:
    """Return the answer with the values of an output, or the reason why it cannot be read."""
    try:
        values = tuple(_qualified(value, node.name, known) for value in PARSERS[probe.tool](text, node))
    except BadOutput as bad:
        return replace(answer, reason=Reason.UNSUPPORTED, detail=f"its output cannot be read: {bad}")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        detail = f"its output is of no known shape ({type(error).__name__}: {error}): {shown(text)}"
        return replace(answer, reason=Reason.UNSUPPORTED, detail=detail[:400])
    if not values:
        return replace(answer, reason=Reason.BLANK, detail=f"it names no value: {shown(text)}")
    return replace(answer, values=values)


def _by_hand(answer: Answer) -> str:
    return f"run it by hand on {answer.node}: {answer.command}"


def _failure(probe: Probe, ran: Ran) -> tuple[Reason, str] | None:
    """Return why a run has no output to read, None if it has."""
    words = ran.error.strip() or ran.text.strip()
    last = f"; seen last: {shown(words[-200:])}" if words else ""
    if _PASSWORD.search(ran.error):
        return Reason.NO_PERMISSION, f"it asks for a password: {shown(words)}"
    if ran.reason in (Reason.TOOL_MISSING, Reason.NO_PERMISSION):
        return ran.reason, ran.detail + (last if ran.reason is Reason.TOOL_MISSING else "")
    if ran.reason is not None and ran.status in (None, 124):
        return ran.reason, ran.detail + last
    if ran.status and not (probe.status_tells and ran.text.strip() and ran.status > 0):
        killed = ran.status in (-9, 137) or words.endswith("Killed")
        return Reason.DIED, f"it {'was killed' if killed else f'ended with status {ran.status}'}{last}"
    if not ran.text.strip():
        return Reason.BLANK, f"no output, status {ran.status}; on its error channel {shown(ran.error)}"
    return None


def _qualified(value: Value, node: str, known: Container[str]) -> Value:
    """Return a value with its entity's full name; raises `BadOutput` for an undeclared entity."""
    entity = node if value.entity == "node" else value.entity
    entity = f"{node}/{entity}" if re.fullmatch(r"gpu\d+", entity) else entity
    if entity not in known:
        raise BadOutput(f"it speaks of {value.entity}, which the target does not declare")
    return replace(value, entity=entity)
