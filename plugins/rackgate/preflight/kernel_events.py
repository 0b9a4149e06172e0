"""Kernel events from before the run, as measurements by (metric, entity)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackgate.nouns.measurement import Measurement, ProbeResults, Reason, missing
from rackgate.nouns.verdict import Verdict
from rackgate.telemetry.kernel.event_history import EventBook
from rackgate.telemetry.kernel.event_kinds import CARD_KINDS, DRIVER_KINDS
from rackgate.telemetry.kernel.xid import Circumstances, JudgedEvent, judge_events, symptom_of

_FAILED, _WARNED, _OTHERS = "xids_since_boot", "xids_warned_since_boot", "kernel_events_since_boot"
_SHOWN = 3


def probe_events(
    books: Mapping[str, EventBook], problems: Mapping[str, str], before_ns: int, profile: str
) -> ProbeResults:
    """Return what a node's kernel log has from before the run, by the classes of the profile.

    XIDs of a declared address count for that card, all others for the node; without a time they count too.
    One whose class nobody knows leaves open how many there are.
    """
    found: ProbeResults = {}
    for node, book in books.items():
        placed = book.window(before_ns, before_ns)
        events = (*placed.earlier, *placed.unplaced, *placed.untrusted)
        judged = judge_events(events, Circumstances(profile=profile, card_of=book.card_of))
        problem = problems.get(node, "")
        for entity in (node, *book.card_of.values()):
            mine = [one for one in judged if _is_of_cards(one) and (one.entity or node) == entity]
            found[_FAILED, entity] = _counted(_FAILED, entity, mine, (Verdict.FAIL,), problem)
            found[_WARNED, entity] = _counted(_WARNED, entity, mine, (Verdict.WARN,), problem)
        others = [one for one in judged if not _is_of_cards(one)]
        found[_OTHERS, node] = _counted(_OTHERS, node, others, (Verdict.FAIL, Verdict.WARN), problem)
    return found


def _is_of_cards(judged: JudgedEvent) -> bool:
    return judged.event.trusted and judged.event.kind in CARD_KINDS | DRIVER_KINDS


def _counted(
    name: str, entity: str, judged: Sequence[JudgedEvent], verdicts: tuple[Verdict, ...], problem: str
) -> Measurement:
    chosen = [one for one in judged if one.verdict in verdicts]
    unknown = [one for one in judged if one.verdict is Verdict.UNKNOWN]
    if not chosen and problem:
        return missing(name, entity, "events", Reason.NO_PERMISSION, problem)
    if not chosen and unknown:
        return missing(name, entity, "events", Reason.UNSUPPORTED, _words(unknown, entity))
    return Measurement(
        metric=name,
        entity=entity,
        value=float(len(chosen)),
        unit="events",
        count=1,
        detail=_words(chosen, entity),
        symptoms=tuple(symptom_of(one) for one in chosen[:_SHOWN]),
        source="probe",
    )


def _words(judged: Sequence[JudgedEvent], entity: str) -> str:
    return "; ".join(_told(one, entity) for one in judged[:_SHOWN])


def _told(judged: JudgedEvent, entity: str) -> str:
    event = judged.event
    what = event.text
    if event.code is not None:
        what = f"{'XID' if event.kind == 'xid' else 'SXid'} {event.code}"
    return f"{event.pci or entity}: {what}: {judged.meaning}. {judged.next_step}"
