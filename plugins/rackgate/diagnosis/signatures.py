"""Known failures by what they say, in layers from the outside in: client, network, ... , hardware."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from rackgate.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Diagnosis", "Layer", "Signature", "diagnose", "filled", "signatures"]

_SHOWN = 240


class Layer(StrEnum):
    """Where a failure lives, the outermost first."""

    CLIENT = "client"
    NETWORK = "network"
    SERVICE = "service"
    MODEL = "model"
    CONTAINER = "container"
    DRIVER = "driver"
    HARDWARE = "hardware"

    @property
    def depth(self) -> int:
        """0 for the outermost."""
        return list(Layer).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One row of the table: found by `pattern` unless `unless` is there too.

    `explains` names signatures that are only consequences of this one. `cause` says whose a start is that
    failed of it, empty for what ends no start.
    """

    name: str
    layer: Layer
    severity: Verdict
    pattern: re.Pattern[str]
    meaning: str
    next_steps: tuple[str, ...]
    source: str
    unless: re.Pattern[str] | None = None
    explains: tuple[str, ...] = ()
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A signature that was found, the words that it was found by and where they start, and what they name."""

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
    raw = tomllib.loads((files("rackgate.diagnosis") / "signatures.toml").read_text("utf-8"))
    return tuple(_signature(name, row) for name, row in raw["signature"].items())


def _signature(name: str, row: Mapping[str, object]) -> Signature:
    steps = row["next_steps"]
    explains = row.get("explains", [])
    if not isinstance(steps, list) or not steps or not isinstance(explains, list):
        raise ValueError(f"signature {name}: next_steps and explains are lists")
    unless = row.get("unless")
    return Signature(
        name=name,
        layer=Layer(str(row["layer"])),
        severity=Verdict(str(row["severity"])),
        pattern=re.compile(str(row["pattern"]), re.IGNORECASE | re.DOTALL),
        meaning=str(row["meaning"]),
        next_steps=tuple(str(step) for step in steps),
        source=str(row["source"]),
        unless=re.compile(str(unless), re.IGNORECASE | re.DOTALL) if unless else None,
        explains=tuple(str(one) for one in explains),
        cause=str(row.get("cause", "")),
    )


def diagnose(text: str, *, limit: int = 8) -> tuple[Diagnosis, ...]:
    """Return what a text shows, causes before their consequences, then the innermost layer first.

    Nothing is invented: a text without a known signature gives nothing.
    """
    found = [
        Diagnosis(signature=known, seen=_shown(match[0]), details=_named(match), start=match.start())
        for known in signatures()
        if (match := known.pattern.search(text)) and not (known.unless and known.unless.search(text))
    ]
    explained = Counter(name for one in found for name in one.signature.explains)
    ordered = sorted(
        found,
        key=lambda one: (
            explained[one.signature.name],
            -one.signature.layer.depth,
            -one.signature.severity.badness,
        ),
    )
    return tuple(ordered[:limit])


def filled(text: str, details: Mapping[str, str]) -> str:
    """Fill `{group}` in; a group that matched nothing leaves no trace, nor does "(now {group})"."""
    whole = re.sub(r"\{(\w+)\}", lambda found: details.get(found[1], ""), text)
    return re.sub(r"\s+(?=[:;,.)])", "", re.sub(r"\(\w+\s\)|\s{2,}", " ", whole)).strip()


def _named(match: re.Match[str]) -> dict[str, str]:
    return {name: value.strip() for name, value in match.groupdict().items() if value is not None}


def _shown(text: str) -> str:
    return " ".join(text.split())[:_SHOWN]
