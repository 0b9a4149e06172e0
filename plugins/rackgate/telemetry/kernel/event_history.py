"""History of a node's kernel events, for queries about any window."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rackgate.nouns.measurement import Reason
from rackgate.telemetry.kernel.kernel_log import KernelEvent, Placed, event_of, place
from rackgate.telemetry.kernel.log_line import LogLine, boot_to_monotonic_ns
from rackgate.telemetry.reading import KERNEL_EVENTS, Reading, kernel_event_kind
from rackgate.telemetry.table import TelemetryTable

_KEPT_EVENTS = 10_000
_KEPT_TEXT = 300
_TWIN_US = 5_000_000


class EventBook:
    """Events in the order in which they were read, the latest 10,000.

    `card_of` maps canonical PCI addresses to entities and may grow; an event of no known card belongs
    to the node.
    """

    def __init__(self, node: str, card_of: Mapping[str, str] | None = None) -> None:
        self.events: list[KernelEvent] = []
        self.card_of = dict(card_of or {})
        self.wall_to_monotonic_ns = time.perf_counter_ns() - time.time_ns()
        self._node = node
        self._looked = False

    def add(self, events: Iterable[KernelEvent]) -> list[Reading]:
        """Keep the events of one look; return one reading for each, at its own moment.

        One without a time came since the look before; of the first look's nobody knows when.
        """
        now_us = time.perf_counter_ns() // 1000
        fresh = list(events) if not self._looked else [_placed(event, now_us) for event in events]
        self._looked = True
        self.events = [*self.events, *fresh][-_KEPT_EVENTS:]
        return [reading for event in fresh if (reading := self._reading(event)) is not None]

    def watch(
        self, problem: str = "", reason: Reason = Reason.UNREACHABLE, *, at_ns: int | None = None
    ) -> Reading:
        """Return the reading that says whether the log is read; without it, no event proves nothing.

        `at_ns` is when the look began: what came later is not in it.
        """
        value, why = (None, reason) if problem else (1.0, None)
        t_ns = time.perf_counter_ns() if at_ns is None else at_ns
        return Reading(t_ns, self._node, self._node, "xid_watch", value, why, problem)

    def window(self, start_ns: int, end_ns: int) -> Placed:
        """Return all events so far, by where they lie to a window of our monotonic clock."""
        return place(self.events, start_ns, end_ns, self.wall_to_monotonic_ns)

    def _reading(self, event: KernelEvent) -> Reading | None:
        moment = boot_to_monotonic_ns(event.line, self.wall_to_monotonic_ns)
        if moment is None:
            return None
        text = event.text[:_KEPT_TEXT]
        if not event.trusted:
            kind = KERNEL_EVENTS["lookalike"]
            return Reading(moment, self._node, self._node, "kernel_event", float(kind), None, text)
        entity = self.card_of.get(event.pci or "", self._node)
        code = event.code if event.code is not None else event.equivalent_xid
        if code is None:
            kind = KERNEL_EVENTS[event.kind]
            return Reading(moment, self._node, entity, "kernel_event", float(kind), None, text)
        if event.pci is not None and entity == self._node:
            text += f" (PCI {event.pci})"
        field = "sxid" if event.kind == "sxid" else "xid"
        return Reading(moment, self._node, entity, field, float(code), None, text)


def _placed(event: KernelEvent, now_us: int) -> KernelEvent:
    if event.line.boot_us is not None or event.line.wall_s is not None:
        return event
    return replace(event, line=replace(event.line, boot_us=now_us))


def events_of(table: TelemetryTable, entities: Sequence[str]) -> tuple[KernelEvent, ...]:
    """Return the events of a node and its cards, or of some of them, from the readings that they became.

    Their address is the entity's name, of no declared card's that of the device; their boot time is our
    monotonic clock. An event that both the driver and the kernel's log told, within 5 s, is one: the
    driver knows the card where the log has an address that is not declared.
    """
    told = [event for name in entities for event in _told(table, name)]
    free = [event for event in told if event.text]
    alone = []
    for event in (event for event in told if not event.text):
        alike = [other for other in free if _same(event, other)]
        twin = next((other for other in alike if other.pci == event.pci), None)
        twin = twin or next((other for other in alike if other.pci not in entities), None)
        if twin is None:
            alone.append(event)
        else:
            free.remove(twin)
    with_words = [event for event in told if event.text]
    return tuple(sorted((*with_words, *alone), key=lambda event: event.line.boot_us or 0))


def _told(table: TelemetryTable, entity: str) -> list[KernelEvent]:
    told: list[KernelEvent] = []
    for field in ("xid", "sxid"):
        series = table.series(entity, field)
        texts = table.details(entity, field)
        for at_ns, code, text in zip(series.t_ns, series.values, texts, strict=True):
            line = LogLine(text=text, boot_us=int(at_ns) // 1000, from_kernel=True)
            told.append(event_of(field, int(code), text, line, _address(text) or entity))
    return told + _other_events(table, entity)


def _same(one: KernelEvent, other: KernelEvent) -> bool:
    apart_us = abs((one.line.boot_us or 0) - (other.line.boot_us or 0))
    return (one.kind, one.code) == (other.kind, other.code) and apart_us <= _TWIN_US


def _address(text: str) -> str | None:
    """Return the address that stands behind the words of an event of no declared card."""
    found = re.search(r" \(PCI (\S+)\)$", text)
    return found[1] if found else None


def _other_events(table: TelemetryTable, entity: str) -> list[KernelEvent]:
    series = table.series(entity, "kernel_event")
    texts = table.details(entity, "kernel_event")
    return [
        KernelEvent(
            kind=kernel_event_kind(number),
            line=LogLine(text=text, boot_us=int(at_ns) // 1000, from_kernel=True),
            text=text,
            pci=entity,
        )
        for at_ns, number, text in zip(series.t_ns, series.values, texts, strict=True)
    ]
