"""Correlation of events with the seconds in which requests were slow or failed. Correlation is no proof."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackgate.diagnosis.co_occurring_events import CoOccurringEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """An event, the time it shares with the windows, and the share of the windows' total time."""

    event: CoOccurringEvent
    overlap_s: float
    share: float

    @property
    def text(self) -> str:
        """One line for a report."""
        return (
            f"seen at the same time: {self.event.text} on {self.event.entity} ({self.share:.0%} of the time)"
        )


def correlate(
    windows: Sequence[tuple[int, int]],
    events: Iterable[CoOccurringEvent],
    *,
    slack_s: float = 1.0,
    limit: int = 10,
) -> tuple[Correlation, ...]:
    """Return the events that overlap the windows (ns), the longest overlap first.

    An event shorter than `slack_s` is widened by `slack_s` to each side of its middle. Events of the same
    kind, entity and text are one correlation with the sum of their overlaps. Of two with the same overlap,
    the one that lasted less outside of the windows comes first.
    """
    slack_ns = round(slack_s * 1e9)
    merged = _merged(windows)
    total_ns = sum(end - start for start, end in merged) or 1
    found: dict[tuple[str, str, str], tuple[CoOccurringEvent, int, int]] = {}
    for event in events:
        start, end = event.start_ns, event.end_ns
        if end - start < slack_ns:
            middle = (start + end) // 2
            start, end = middle - slack_ns, middle + slack_ns
        overlap_ns = sum(max(0, min(end, stop) - max(start, begin)) for begin, stop in merged)
        if overlap_ns > 0:
            key = (event.kind, event.entity, event.text)
            first, inside_ns, outside_ns = found.get(key, (event, 0, 0))
            found[key] = (first, inside_ns + overlap_ns, outside_ns + end - start - overlap_ns)
    ranked = sorted(found.items(), key=lambda item: (-item[1][1], item[1][2], item[0]))
    return tuple(
        Correlation(event=event, overlap_s=overlap_ns / 1e9, share=min(1.0, overlap_ns / total_ns))
        for _, (event, overlap_ns, _) in ranked[:limit]
    )


def _merged(windows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
