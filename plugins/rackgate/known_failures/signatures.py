"""Signatures of known failures, found by a key or in a text, in layers from the client to the hardware."""

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
    """A row of the table. One of its `keys` finds it, or `pattern` in a text that does not match `unless`.

    `explains` names signatures that are consequences of this one. `cause` is the category of a failed start
    with this signature, empty if it ends no start.
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
    """A signature that was found, and the matched text with its named groups.

    `start` is the position of the match in the text, 0 for a key.
    """

    signature: Signature
    seen: str
    details: Mapping[str, str]
    start: int = 0

    @property
    def meaning(self) -> str:
        """The meaning of the signature, filled in."""
        return filled(self.signature.meaning, self.details)

    @property
    def next_steps(self) -> tuple[str, ...]:
        """The next steps in order, filled in."""
        return tuple(filled(step, self.details) for step in self.signature.next_steps)

    @property
    def text(self) -> str:
        """Layer, meaning, matched text and first next step, on one line."""
        return f"{self.signature.layer}: {self.meaning} (seen: {self.seen}). Next: {self.next_steps[0]}"


@cache
def signatures() -> tuple[Signature, ...]:
    """Return the table in order; raises ValueError for an invalid row."""
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
    return tuple(str(text) for text in value) if isinstance(value, list) else ()


def _pattern(value: object) -> re.Pattern[str] | None:
    return re.compile(str(value), re.IGNORECASE | re.DOTALL) if value else None


def failures_in(text: str) -> Iterator[Diagnosis]:
    """Yield the known failures whose pattern matches the text, in the order of the table."""
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
    """Fill in `{group}`; a group without a match is removed, as is "(now {group})"."""
    whole = re.sub(r"\{(\w+)\}", lambda found: details.get(found[1], ""), text)
    return re.sub(r"\s+(?=[:;,.)])", "", re.sub(r"\(\w+\s\)|\s{2,}", " ", whole)).strip()


def _named(match: re.Match[str]) -> dict[str, str]:
    return {name: value.strip() for name, value in match.groupdict().items() if value is not None}


def shortened(text: str) -> str:
    """Return a text on one line, at most 240 characters."""
    return " ".join(text.split())[:_SHOWN]
