"""Quality of a look's measurement: shared reads, opened connections, and sources of token counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.nouns.sample import Outcome
from rackgate.statistics.percentiles import nearest_rank

CHUNKS = "chunks"
"""The token source of an answer without the server's token count."""


def measurement_quality(table: SampleTable | None) -> dict[str, Any]:
    """Return the record entries of the measured requests' reads, connections and token sources.

    `shared_chunks` of all `chunks` arrived in one read with another chunk. `opened` requests waited
    `connect_p99_ms` for a new connection.
    """
    if table is None:
        return {}
    measured = table.measured
    waits = np.asarray(measured.column("connect_ms"), dtype=float)
    waits = waits[~np.isnan(waits)]
    sources = {name: count for name, count in measured.labels("token_source").counts().items() if name}
    return {
        "chunks": int(measured.column("chunks").sum()),
        "shared_chunks": int(measured.column("shared_chunks").sum()),
        "opened": len(waits),
        "connect_p99_ms": nearest_rank(waits, 0.99),
        "token_sources": sources,
    }


def shared_read_share(table: SampleTable) -> float | None:
    """Return the share of chunks that arrived in one read with another chunk, None without chunks."""
    chunks = float(table.column("chunks").sum())
    return float(table.column("shared_chunks").sum()) / chunks if chunks else None


def token_count_caveat(table: SampleTable) -> str:
    """Return a note on the ok answers whose tokens were counted as chunks, empty if there are none."""
    return table.once("token count caveat", lambda: _token_count_caveat(table))


def _token_count_caveat(table: SampleTable) -> str:
    if CHUNKS not in table.labels("token_source").names:
        return ""
    ok = table.where(table.labels("outcome").isin((Outcome.OK,)))
    counted = ok.labels("token_source").counts().get(CHUNKS, 0)
    return f"tokens of {counted} of {len(ok)} answers are a count of chunks" if counted else ""
