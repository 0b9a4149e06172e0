"""What is told of a look beside its counters: how coarsely it was read, and what its numbers rest on."""

from __future__ import annotations

from typing import Any

import numpy as np

from rackgate.loadgen.results.table import SampleTable
from rackgate.nouns.sample import Outcome
from rackgate.statistics.percentiles import nearest_rank

CHUNKS = "chunks"
"""The token source of an answer whose tokens the server did not count."""


def account_of(table: SampleTable | None) -> dict[str, Any]:
    """Return the measured requests' reads, connections and sources of token counts.

    `shared_chunks` of all `chunks` came in one read with another one, whose arrival they share. `opened`
    requests waited for a connection of their own, `connect_p99_ms` of them is in ms.
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
    """Return the share of token-bearing chunks that came in one read with another one; None of none."""
    chunks = float(table.column("chunks").sum())
    return float(table.column("shared_chunks").sum()) / chunks if chunks else None


def chunk_counted(table: SampleTable) -> str:
    """Say how many ok answers' tokens are a count of chunks, as the server gave none; empty if none."""
    return table.once("chunk counted", lambda: _chunk_counted(table))


def _chunk_counted(table: SampleTable) -> str:
    if CHUNKS not in table.labels("token_source").names:
        return ""
    ok = table.where(table.labels("outcome").are((Outcome.OK,)))
    counted = ok.labels("token_source").counts().get(CHUNKS, 0)
    return f"tokens of {counted} of {len(ok)} answers are a count of chunks" if counted else ""
