"""What else happened in the seconds in which something failed: seen at the same time, no proof."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackgate.diagnosis.co_occurring_events import Happening


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTogether:
    """A happening with the time that it shares with the windows asked for, and its share of them."""

    happening: Happening
    overlap_s: float
    share: float

    @property
    def text(self) -> str:
        """One line for a report."""
        happening = self.happening
        return f"seen at the same time: {happening.text} on {happening.entity} ({self.share:.0%} of the time)"


def seen_at_the_same_time(
    windows: Sequence[tuple[int, int]],
    happenings: Iterable[Happening],
    *,
    slack_s: float = 1.0,
    limit: int = 10,
) -> tuple[SeenTogether, ...]:
    """Return what overlaps the windows (ns), the longest overlap first, then the more exact one.

    A happening that is a moment counts as `slack_s` long to each side. What happened several times in the
    same words is said once, with the time of all of them. Of two with the same overlap the one that lasted
    less outside of the windows comes first: it fits them better.
    """
    slack_ns = round(slack_s * 1e9)
    merged = _merged(windows)
    total_ns = sum(end - start for start, end in merged) or 1
    found: dict[tuple[str, str, str], tuple[Happening, int, int]] = {}
    for happening in happenings:
        start, end = happening.start_ns, happening.end_ns
        if end - start < slack_ns:
            middle = (start + end) // 2
            start, end = middle - slack_ns, middle + slack_ns
        overlap_ns = sum(max(0, min(end, stop) - max(start, begin)) for begin, stop in merged)
        if overlap_ns > 0:
            words = (happening.kind, happening.entity, happening.text)
            first, shared_ns, outside_ns = found.get(words, (happening, 0, 0))
            found[words] = (first, shared_ns + overlap_ns, outside_ns + end - start - overlap_ns)
    ranked = sorted(found.items(), key=lambda one: (-one[1][1], one[1][2], one[0]))
    return tuple(
        SeenTogether(happening=happening, overlap_s=overlap_ns / 1e9, share=min(1.0, overlap_ns / total_ns))
        for _, (happening, overlap_ns, _) in ranked[:limit]
    )


def _merged(windows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
