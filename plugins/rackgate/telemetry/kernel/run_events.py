"""Kernel events of the whole run, between its loads too, as measurements by (metric, node)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.measurement import Measurement, ProbeResults, Reason, missing
from rackgate.nouns.target import Target
from rackgate.nouns.verdict import Verdict
from rackgate.telemetry.kernel.window_events import judged_events, name_of, unread, whose, words_of
from rackgate.telemetry.kernel.xid import JudgedEvent, symptom_of
from rackgate.telemetry.reading import EVENT_FIELDS
from rackgate.telemetry.table import TelemetryTable

_SHOWN = 3
_RECORDED = 200

RUN_FIELDS = frozenset({*EVENT_FIELDS, "xid_watch", "row_remap_pending"})
"""The fields that a run's events and their log's gaps are read from."""

RUN_PROBES = {
    "xids_in_run": "XIDs of class FAIL of a node's cards in the whole run, our faults' left out.",
    "xids_warned_in_run": "XIDs of class WARN of a node's cards in the whole run, our faults' left out.",
    "kernel_events_in_run": "Other events of class FAIL in a node's kernel log in the whole run.",
    "kernel_warnings_in_run": "Other events of class WARN in a node's kernel log in the whole run.",
}
"""Definition of each metric over the whole run; all count events."""

_COUNTED = {
    "xids_in_run": (True, Verdict.FAIL),
    "xids_warned_in_run": (True, Verdict.WARN),
    "kernel_events_in_run": (False, Verdict.FAIL),
    "kernel_warnings_in_run": (False, Verdict.WARN),
}


def judged_of_run(
    target: Target,
    table: TelemetryTable,
    window: tuple[int, int],
    *,
    faults: Iterable[FaultTimeline],
    profile: str,
) -> dict[str, tuple[JudgedEvent, ...]]:
    """Return by node what came of it and its cards in a window (ns), by the classes of the profile."""
    known = tuple(faults)
    return {
        node.name: judged_events(
            table,
            (node.name, *(card.name for card in node.cards)),
            window,
            target,
            faults=known,
            profile=profile,
        )
        for node in target.nodes
    }


def probe_run(
    judged: Mapping[str, Sequence[JudgedEvent]],
    table: TelemetryTable,
    window: tuple[int, int],
    slack_ns: int,
) -> ProbeResults:
    """Return how much of each class came of each node.

    A log that was not read until `slack_ns` before the window's end does not speak for it.
    """
    found = {}
    for node, events in judged.items():
        gap = unread(table, node, window, slack_ns)
        for metric, (of_card, verdict) in _COUNTED.items():
            mine = [one for one in events if one.of_card is of_card]
            found[metric, node] = _measured(metric, node, mine, verdict, window, gap)
    return found


def event_entries(
    judged: Mapping[str, Sequence[JudgedEvent]], target: Target
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (moment in ns, entry of a record) of each event, of each node as they came, 200 at most.

    An entry says what it is and counts as, whose it is by name, address and serial, and the fault of ours
    that explains it.
    """
    serials = {card.name: card.serial for card in target.cards}
    for node, events in judged.items():
        for one in sorted(events, key=_moment_us)[:_RECORDED]:
            fault = one.fault and f"{one.fault.kind} of {one.fault.entity}"
            expected = f", expected: our own {fault}" if fault else ""
            yield (
                _moment_us(one) * 1000,
                {
                    "text": f"{name_of(one)} of {whose(one)}: counts as {one.verdict}{expected}",
                    "node": node,
                    "entity": one.entity,
                    "pci": _pci_of(one, target),
                    "serial": serials.get(one.entity or ""),
                    "kernel_kind": one.event.kind,
                    "code": one.event.code,
                    "verdict": str(one.verdict),
                    "fault": fault,
                },
            )


def _moment_us(judged: JudgedEvent) -> int:
    return judged.event.line.boot_us or 0


def _pci_of(judged: JudgedEvent, target: Target) -> str | None:
    declared = {card.name: card.pci for card in target.cards}
    known = judged.event.pci or ""
    return declared.get(known) if known == judged.entity else known


def _measured(
    metric: str,
    node: str,
    judged: Sequence[JudgedEvent],
    counted: Verdict,
    window: tuple[int, int],
    gap: tuple[Reason, str] | None,
) -> Measurement:
    chosen = [one for one in judged if one.verdict is counted]
    unknown = [one for one in judged if one.verdict is Verdict.UNKNOWN]
    if not chosen and gap is not None:
        return missing(metric, node, "events", *gap)
    if not chosen and unknown:
        return missing(metric, node, "events", Reason.UNSUPPORTED, words_of(unknown, window))
    return Measurement(
        metric=metric,
        entity=node,
        value=float(len(chosen)),
        unit="events",
        count=1,
        detail=words_of(chosen, window),
        symptoms=tuple(symptom_of(one) for one in chosen[:_SHOWN]),
        source="telemetry",
    )
