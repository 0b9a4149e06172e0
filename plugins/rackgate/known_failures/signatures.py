"""Known failures by their code or by what they say, in layers from the outside in: client, ... , hardware."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rackgate.nouns.measurement import Layer, Symptom
from rackgate.nouns.verdict import Verdict
from rackgate.telemetry.cards.clock_events import CLOCK_EVENTS
from rackgate.telemetry.kernel.event_kinds import KINDS
from rackgate.telemetry.kernel.xid import xid_class

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


def diagnose(text: str, *, symptoms: Iterable[Symptom] = (), limit: int = 8) -> tuple[Diagnosis, ...]:
    """Return what a text and symptoms show, causes before their consequences, then the innermost layer first.

    Nothing is invented: what no signature knows gives nothing, but for XIDs and events of the
    kernel that their own tables know.
    """
    found: dict[str, Diagnosis] = {}
    for one in (*_by_key(symptoms), *_by_words(text)):
        found.setdefault(one.signature.name, one)
    explained = Counter(name for one in found.values() for name in one.signature.explains)
    ordered = sorted(
        found.values(),
        key=lambda one: (
            explained[one.signature.name],
            -one.signature.layer.depth,
            -one.signature.severity.badness,
        ),
    )
    return tuple(ordered[:limit])


def _by_words(text: str) -> Iterator[Diagnosis]:
    for known in signatures():
        match = known.pattern.search(text) if known.pattern else None
        if match and not (known.unless and known.unless.search(text)):
            seen, details = _shown(match[0]), _named(match)
            yield Diagnosis(signature=known, seen=seen, details=details, start=match.start())


def _by_key(symptoms: Iterable[Symptom]) -> Iterator[Diagnosis]:
    for symptom in symptoms:
        for key in _single(symptom.key):
            known = _keys().get(key) or _keys().get(key.split(":")[0]) or _from_the_tables(key)
            if known is not None:
                yield Diagnosis(signature=known, seen=_shown(symptom.seen), details={})


def _single(key: str) -> tuple[str, ...]:
    """Return the key of each bit of a mask of clock events, hardware's before software's; else the key."""
    kind, _, code = key.partition(":")
    if kind != "clock":
        return (key,)
    return tuple(f"clock:{bit:#x}" for bit in sorted(CLOCK_EVENTS, reverse=True) if int(code, 16) & bit)


@cache
def _keys() -> Mapping[str, Signature]:
    return {key: known for known in signatures() for key in known.keys}


def _from_the_tables(key: str) -> Signature | None:
    """Return what the tables of XIDs and of kernel events say of a code that no signature is about."""
    kind, _, code = key.partition(":")
    number = code.split(":")[0]
    if kind == "kernel" and code in KINDS:
        event = KINDS[code]
        return Signature(
            name=f"kernel_{code}",
            layer=Layer.DRIVER,
            severity=event.counts_as,
            meaning=event.meaning,
            next_steps=(event.next_step,),
            source="rackgate: kinds of kernel events",
        )
    if kind != "xid" or not number.isdigit():
        return None
    row = xid_class(int(number))
    return Signature(
        name=f"xid_{number}",
        layer=Layer.HARDWARE,
        severity=row.counts_as or Verdict.UNKNOWN,
        meaning=f"XID {number}: {row.meaning}",
        next_steps=(row.next_step,),
        source=f"NVIDIA XID catalogue: {number}",
    )


def filled(text: str, details: Mapping[str, str]) -> str:
    """Fill `{group}` in; a group that matched nothing leaves no trace, nor does "(now {group})"."""
    whole = re.sub(r"\{(\w+)\}", lambda found: details.get(found[1], ""), text)
    return re.sub(r"\s+(?=[:;,.)])", "", re.sub(r"\(\w+\s\)|\s{2,}", " ", whole)).strip()


def _named(match: re.Match[str]) -> dict[str, str]:
    return {name: value.strip() for name, value in match.groupdict().items() if value is not None}


def _shown(text: str) -> str:
    return " ".join(text.split())[:_SHOWN]
