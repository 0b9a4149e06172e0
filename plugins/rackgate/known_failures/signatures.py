"""Known failures by their code or by what they say, in layers from the outside in: client, ... , hardware."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rackgate.nouns.measurement import Layer
from rackgate.nouns.verdict import Verdict

_SHOWN = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One row of the table: found by one of its `keys`, or by `pattern` unless `unless` is there too.

    `explains` names signatures that are only consequences of this one. `cause` says whose a start is that
    failed of it, empty for what ends no start.
    """

    name: str
    layer: Layer
    severity: Verdict
    meaning: str
    next_steps: tuple[str, ...]
    source: str
    keys: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    explains: tuple[str, ...] = ()
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A signature that was found, the words that it was found by and where they start, and what they name.

    What was found by a key starts at 0.
    """

    signature: Signature
    seen: str
    details: Mapping[str, str]
    start: int = 0

    @property
    def meaning(self) -> str:
        """What it means, filled in."""
        return filled(self.signature.meaning, self.details)

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What to do, in order, filled in."""
        return tuple(filled(step, self.details) for step in self.signature.next_steps)

    @property
    def text(self) -> str:
        """Layer, what was seen and the first next step, for one line of a message."""
        return f"{self.signature.layer}: {self.meaning} (seen: {self.seen}). Next: {self.next_steps[0]}"


@cache
def signatures() -> tuple[Signature, ...]:
    """Return the whole table, in its order; raises ValueError for a row that is not right."""
    raw = tomllib.loads((files("rackgate.known_failures") / "signatures.toml").read_text("utf-8"))
    return tuple(_signature(name, row) for name, row in raw["signature"].items())


def _signature(name: str, row: Mapping[str, object]) -> Signature:
    steps, pattern, keys = row["next_steps"], _pattern(row.get("pattern")), _texts(row.get("keys", []))
    if not _texts(steps) or not (pattern or keys):
        raise ValueError(f"signature {name}: it needs next_steps, and keys or a pattern")
    return Signature(
        name=name,
        layer=Layer(str(row["layer"])),
        severity=Verdict(str(row["severity"])),
        keys=keys,
        pattern=pattern,
        meaning=str(row["meaning"]),
        next_steps=_texts(steps),
        source=str(row["source"]),
        unless=_pattern(row.get("unless")),
        explains=_texts(row.get("explains", [])),
        cause=str(row.get("cause", "")),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()


def _pattern(value: object) -> re.Pattern[str] | None:
    return re.compile(str(value), re.IGNORECASE | re.DOTALL) if value else None


def failures_in(text: str) -> Iterator[Diagnosis]:
    """Yield the known failures whose pattern a text matches, in the order of the table."""
    for known in signatures():
        match = known.pattern.search(text) if known.pattern else None
        if match and not (known.unless and known.unless.search(text)):
            seen, details = shortened(match[0]), _named(match)
            yield Diagnosis(signature=known, seen=seen, details=details, start=match.start())


def ranked(found: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Return each known failure once: causes before their consequences, then the innermost layer first."""
    first: dict[str, Diagnosis] = {}
    for diagnosis in found:
        first.setdefault(diagnosis.signature.name, diagnosis)
    explained = Counter(name for diagnosis in first.values() for name in diagnosis.signature.explains)
    return sorted(
        first.values(),
        key=lambda diagnosis: (
            explained[diagnosis.signature.name],
            -diagnosis.signature.layer.depth,
            -diagnosis.signature.severity.badness,
        ),
    )


def filled(text: str, details: Mapping[str, str]) -> str:
    """Fill `{group}` in; a group that matched nothing leaves no trace, nor does "(now {group})"."""
    whole = re.sub(r"\{(\w+)\}", lambda found: details.get(found[1], ""), text)
    return re.sub(r"\s+(?=[:;,.)])", "", re.sub(r"\(\w+\s\)|\s{2,}", " ", whole)).strip()


def _named(match: re.Match[str]) -> dict[str, str]:
    return {name: value.strip() for name, value in match.groupdict().items() if value is not None}


def shortened(text: str) -> str:
    """Return a text on one line, at most 240 characters."""
    return " ".join(text.split())[:_SHOWN]
