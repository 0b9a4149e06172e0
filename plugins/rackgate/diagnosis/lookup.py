"""Lookup of known failures by text and by symptom: signatures, XIDs and kernel events."""

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

    A symptom without a signature, XID or kernel event has no diagnosis.
    """
    return tuple(ranked((*_by_key(symptoms), *failures_in(text)))[:limit])


def _by_key(symptoms: Iterable[Symptom]) -> Iterator[Diagnosis]:
    for symptom in symptoms:
        for key in _single_keys(symptom.key):
            known = (
                _signatures_by_key().get(key)
                or _signatures_by_key().get(key.split(":")[0])
                or _from_code_table(key)
            )
            if known is not None:
                yield Diagnosis(signature=known, seen=shortened(symptom.seen), details={})


def _single_keys(key: str) -> tuple[str, ...]:
    """Return the key; of a mask of clock events one key for each bit, hardware before software."""
    kind, _, code = key.partition(":")
    if kind != "clock":
        return (key,)
    return tuple(f"clock:{bit:#x}" for bit in sorted(CLOCK_EVENTS, reverse=True) if int(code, 16) & bit)


@cache
def _signatures_by_key() -> Mapping[str, Signature]:
    return {key: known for known in signatures() for key in known.keys}


def _from_code_table(key: str) -> Signature | None:
    """Return a signature made of the table of XIDs or kernel events, for a code without one."""
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
