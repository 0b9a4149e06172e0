"""Diagnoses of a text and of symptoms: known failures, XIDs and kernel events, each with its next step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from rackgate.known_failures.signatures import (
    Diagnosis,
    Signature,
    failures_in,
    ranked,
    shortened,
    signatures,
)
from rackgate.nouns.measurement import Layer, Symptom
from rackgate.nouns.verdict import Verdict
from rackgate.telemetry.cards.clock_events import CLOCK_EVENTS
from rackgate.telemetry.kernel.event_kinds import KINDS
from rackgate.telemetry.kernel.xid import xid_class


def diagnose(text: str, *, symptoms: Iterable[Symptom] = (), limit: int = 8) -> tuple[Diagnosis, ...]:
    """Return the diagnoses of a text and of symptoms: causes first, then the innermost layer first.

    A symptom that neither a signature nor the tables of XIDs and kernel events know gives none.
    """
    return tuple(ranked((*_by_key(symptoms), *failures_in(text)))[:limit])


def _by_key(symptoms: Iterable[Symptom]) -> Iterator[Diagnosis]:
    for symptom in symptoms:
        for key in _single(symptom.key):
            known = _keys().get(key) or _keys().get(key.split(":")[0]) or _from_the_tables(key)
            if known is not None:
                yield Diagnosis(signature=known, seen=shortened(symptom.seen), details={})


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
