"""What the kernels told in a window of time: judged, in words, and whether they were listened to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.measurement import Reason
from rackgate.nouns.target import Target
from rackgate.telemetry.kernel.event_history import events_of
from rackgate.telemetry.kernel.kernel_log import KernelEvent
from rackgate.telemetry.kernel.xid import Circumstances, JudgedEvent, explained_by, judge_events
from rackgate.telemetry.table import TelemetryTable

_SHOWN = 3


def judged_events(
    table: TelemetryTable,
    entities: Iterable[str],
    window: tuple[int, int],
    target: Target,
    *,
    faults: Iterable[FaultTimeline],
    profile: str,
) -> tuple[JudgedEvent, ...]:
    """Return what each event of the entities within a window (ns) counts as, the worst first.

    The first entity is the node, or the one card, to which an event of no declared card belongs. An event
    that one of our faults explains counts for nothing.
    """
    names = tuple(entities)
    start_us, end_us = (moment // 1000 for moment in window)
    events = events_of(table, names)
    around = Circumstances(
        profile=profile,
        card_of={pci: pci if pci in names else names[0] for event in events if (pci := event.pci)},
        injected=explanation(target, faults),
        window_us=(start_us, end_us),
        pending=_pending(table, names),
    )
    return judge_events((one for one in events if start_us <= (one.line.boot_us or 0) <= end_us), around)


def explanation(
    target: Target, faults: Iterable[FaultTimeline]
) -> Callable[[KernelEvent, str | None], FaultTimeline | None]:
    """Return a function that gives the one of our faults on the target's engines that explains an event.

    What a card without a declared address tells belongs to its node.
    """
    nameless = {card.name: card.node for card in target.cards if not card.pci}
    hit: dict[str, tuple[str, ...]] = {}
    for engine in target.engines:
        nodes = [nameless[card] for card in engine.cards if card in nameless]
        hit |= dict.fromkeys((engine.name, engine.entity), (*engine.cards, *nodes))
    return explained_by(faults, hit, 0)


def unread(
    table: TelemetryTable, node: str, window: tuple[int, int], slack_ns: int
) -> tuple[Reason, str] | None:
    """Return why the kernel log of a node does not speak for a window (ns), None if it does.

    It does where it was read after the window's end, or less than `slack_ns` before, and no lines were
    lost from the window's begin until then: what was not read for a while stands in the log still.
    """
    start_ns, end_ns = window
    series, text = table.series(node, "xid_watch"), f"the kernel log of {node} "
    there = ~np.isnan(series.values)
    read = np.sort(series.t_ns[there])
    if not len(read):
        reason, detail = series.why_missing
        return reason, f"{text}is not read: {detail}"
    if read[-1] < end_ns - slack_ns:
        reason, detail = series.reasons[-1] if series.reasons else (Reason.STALE, "it was not asked again")
        late_s = (end_ns - read[-1]) / 1e9
        return reason, f"{text}was not read in the last {late_s:.1f} s: {detail}"
    after = read[read >= end_ns]
    until = int(after[0]) if len(after) else end_ns
    for at_ns, (reason, detail) in zip(series.t_ns[~there], series.reasons, strict=True):
        if reason is Reason.INSTRUMENT and start_ns < at_ns <= until:
            return reason, f"{text}has a gap: {detail}"
    return None


def words_of(judged: Sequence[JudgedEvent], window: tuple[int, int]) -> str:
    """Return what came, when first, how often, whose it is and what to do; of what came again, its rate."""
    groups: dict[tuple[str, str], list[JudgedEvent]] = {}
    for one in judged:
        groups.setdefault((name_of(one), whose(one)), []).append(one)
    shown = list(groups.items())[:_SHOWN]
    return "; ".join(
        f"{name} of {owner}{_when(group, window)}. {group[0].next_step}" for (name, owner), group in shown
    )


def name_of(judged: JudgedEvent) -> str:
    """Return code and meaning of an event, of one without a code its words."""
    event = judged.event
    if event.code is None:
        return f"{judged.meaning}: {event.text}"
    kind = "XID" if event.kind == "xid" else "SXid"
    return f"{kind} {event.code} ({judged.meaning})"


def whose(judged: JudgedEvent) -> str:
    """Return whose an event is: the entity, and the address where it is another."""
    address = judged.event.pci or ""
    entity = judged.entity or address
    return entity if address in ("", entity) else f"{entity} at {address}"


def _when(group: Sequence[JudgedEvent], window: tuple[int, int]) -> str:
    start_ns, end_ns = window
    first_us = min(one.event.line.boot_us or 0 for one in group)
    came = f", {first_us / 1e6 - start_ns / 1e9:.0f} s after the begin"
    hours = (end_ns - start_ns) / 3.6e12
    return f"{came}, {len(group)} times: {len(group) / hours:.3g} per hour" if len(group) > 1 else came


def _pending(table: TelemetryTable, entities: Iterable[str]) -> dict[str, float]:
    """Return how many row remaps wait for a reset, of each entity whose last reading says it."""
    found = {}
    for name in entities:
        reading = table.latest(name).get("row_remap_pending")
        if reading is not None and reading.value is not None:
            found[name] = reading.value
    return found
