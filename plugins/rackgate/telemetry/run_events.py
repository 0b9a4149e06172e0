"""What the kernels told in the whole run, between its loads too -> measurements by (metric, node)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rackgate.measurement import Measurement, Reason, missing
from rackgate.telemetry.reading import EVENT_FIELDS
from rackgate.telemetry.window_events import judged_events, unread, words_of
from rackgate.telemetry.xid import symptom_of
from rackgate.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rackgate.fault import FaultTimeline
    from rackgate.target import Target
    from rackgate.telemetry.table import TelemetryTable
    from rackgate.telemetry.xid import JudgedEvent

__all__ = ["RUN_FIELDS", "RUN_PROBES", "probe_run"]

_SHOWN = 3

RUN_FIELDS = frozenset({*EVENT_FIELDS, "xid_watch", "row_remap_pending"})
"""The fields that `probe_run` reads."""

RUN_PROBES = {
    "xids_in_run": "XIDs of class FAIL of a node's cards in the whole run, our faults' left out.",
    "xids_warned_in_run": "XIDs of class WARN of a node's cards in the whole run, our faults' left out.",
    "kernel_events_in_run": "Other events of class FAIL in a node's kernel log in the whole run.",
    "kernel_warnings_in_run": "Other events of class WARN in a node's kernel log in the whole run.",
}
"""Definition of each probe of a node over the whole run; all count events."""

_COUNTED = {
    "xids_in_run": (True, Verdict.FAIL),
    "xids_warned_in_run": (True, Verdict.WARN),
    "kernel_events_in_run": (False, Verdict.FAIL),
    "kernel_warnings_in_run": (False, Verdict.WARN),
}


def probe_run(
    target: Target,
    table: TelemetryTable,
    window: tuple[int, int],
    *,
    faults: Iterable[FaultTimeline],
    profile: str,
    slack_ns: int,
) -> dict[tuple[str, str], Measurement]:
    """Return what came of each node in a window (ns), by the classes of the profile.

    A log that was not read until `slack_ns` before the window's end does not speak for it.
    """
    found, known = {}, tuple(faults)
    for node in target.nodes:
        names = (node.name, *(card.name for card in node.cards))
        judged = judged_events(table, names, window, target, faults=known, profile=profile)
        gap = unread(table, node.name, window, slack_ns)
        for metric, (of_card, verdict) in _COUNTED.items():
            mine = [one for one in judged if one.of_card is of_card]
            found[metric, node.name] = _measured(metric, node.name, mine, verdict, window, gap)
    return found


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
