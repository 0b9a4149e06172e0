"""Times to first token as an engine counts them itself: what its histogram says of one look of a load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rackgate.telemetry.engine_metrics import EnginePage, TtftHistogram


def histograms_meanwhile(
    before: Mapping[str, EnginePage | None], after: Mapping[str, EnginePage | None]
) -> dict[str, TtftHistogram]:
    """Return what each engine counted between two looks at its page; those that tell none are left out.

    So is one whose counters fell: it was started again.
    """
    found = {}
    for engine, now in after.items():
        then = before.get(engine)
        if now is None or then is None or now.ttft is None or then.ttft is None:
            continue
        meanwhile = now.ttft.since(then.ttft)
        if meanwhile is not None:
            found[engine] = meanwhile
    return found


def histogram_entry(histogram: TtftHistogram) -> dict[str, Any]:
    """Return a histogram as a record holds it."""
    return {
        "edges_s": list(histogram.edges_s),
        "counts": list(histogram.counts),
        "sum_s": histogram.sum_s,
    }


def histogram_of(entry: Mapping[str, Any]) -> TtftHistogram:
    """Return the histogram of a record, whose infinity is the word "inf". Raises `KeyError`, `ValueError`."""
    return TtftHistogram(
        tuple(float(edge) for edge in entry["edges_s"]),
        tuple(float(count) for count in entry["counts"]),
        float(entry["sum_s"]),
    )
