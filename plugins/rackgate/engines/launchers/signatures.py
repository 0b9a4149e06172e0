"""Why a start failed, by what was said: the engine's own known failures, then the common table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rackgate.engines.catalogue import KnownFailure
from rackgate.known_failures.signatures import failures_in, filled, ranked
from rackgate.nouns.measurement import Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A known failure as it was found: the line that shows it, and the named groups that matched.

    `layer` is that of `LaunchFailed`. `cause` says whose it is: `environment` (the node or the daemon),
    `configuration` (how it was started), `credentials`, `model` or `engine`.
    """

    name: str
    layer: str
    cause: str
    hint: str
    line: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


def explain(text: str, first: Iterable[KnownFailure] = ()) -> Explanation | None:
    """Return the known failure that `text` shows: the first of `first`, else what the common table knows.

    Of that table's rows only those with a cause can end a start; causes come before their consequences.
    """
    for known in first:
        match = re.search(known.pattern, text)
        if match:
            facts = {group: value.strip() for group, value in match.groupdict().items() if value is not None}
            return Explanation(
                name=known.name,
                layer=known.layer,
                cause=known.cause,
                hint=filled(known.hint, facts),
                line=_line_at(text, match.start()),
                facts=facts,
            )
    for found in ranked(failures_in(text)):
        if found.signature.cause:
            return Explanation(
                name=found.signature.name,
                layer="model" if found.signature.layer is Layer.MODEL else "service",
                cause=found.signature.cause,
                hint=f"{found.meaning}. {' '.join(found.next_steps)}",
                line=_line_at(text, found.start),
                facts=found.details,
            )
    return None


def _line_at(text: str, start: int) -> str:
    """Return the line in which a match starts, at most 300 characters of it from the match on."""
    first, last = text.rfind("\n", 0, start) + 1, text.find("\n", start)
    line = text[first : last if last >= 0 else None].strip()
    return line if len(line) <= 300 else text[start : start + 300].strip()
