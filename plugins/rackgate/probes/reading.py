"""What a program said -> values, or the reason why there are none. Silence and bad words are never good."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import replace

from rackgate.hosts.runner import Ran
from rackgate.nouns.measurement import Reason
from rackgate.probes.json_text import shown
from rackgate.probes.parsers import PARSERS
from rackgate.probes.probe import Answer, Asked, BadOutput, Probe, Value

_PASSWORD = re.compile(r"password is required|a terminal is required|password for \w+:", re.IGNORECASE)


def answer_of(probe: Probe, asked: Asked, ran: Ran, known: Container[str], answer: Answer) -> Answer:
    """Return the answer with what the program's words are worth.

    A reason of the runner, a bad exit status (unless it is part of the tool's result), no output, or an
    output of another shape gives no value, with what was seen.
    """
    answer = replace(answer, status=ran.status, text=ran.text, errors=ran.error)
    why = _unheard(probe, ran)
    if why is not None:
        hint = probe.install if why[0] is Reason.TOOL_MISSING else _by_hand(answer)
        return replace(answer, reason=why[0], detail=why[1], hint=hint)
    found = read_text(probe, asked, ran.text, known, answer)
    return found if found.answered else replace(found, hint=_by_hand(answer))


def read_text(probe: Probe, asked: Asked, text: str, known: Container[str], answer: Answer) -> Answer:
    """Return the answer with the values of an output, or why it cannot be read."""
    try:
        values = tuple(_named(one, asked.node, known) for one in PARSERS[probe.tool](text, asked))
    except BadOutput as bad:
        return replace(answer, reason=Reason.UNSUPPORTED, detail=f"its output cannot be read: {bad}")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        told = f"its output is of no known shape ({type(error).__name__}: {error}): {shown(text)}"
        return replace(answer, reason=Reason.UNSUPPORTED, detail=told[:400])
    if not values:
        return replace(answer, reason=Reason.BLANK, detail=f"it names no value: {shown(text)}")
    return replace(answer, values=values)


def _by_hand(answer: Answer) -> str:
    return f"run it by hand on {answer.node}: {answer.command}"


def _unheard(probe: Probe, ran: Ran) -> tuple[Reason, str] | None:
    """Return why what was said is not even looked at, None if it is."""
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


def _named(value: Value, node: str, known: Container[str]) -> Value:
    """Return a value under its entity's whole name; raises `BadOutput` for one that is not declared."""
    entity = node if value.entity == "node" else value.entity
    entity = f"{node}/{entity}" if re.fullmatch(r"gpu\d+", entity) else entity
    if entity not in known:
        raise BadOutput(f"it speaks of {value.entity}, which the target does not declare")
    return replace(value, entity=entity)
