"""Detects cached answers by sending each prompt twice in a row.

A prefix cache speeds up the first token only. If the later tokens are faster too, they were not generated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackgate.loadgen.results.offered_load import OfferedLoad
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.nouns.load import Arrival, Load
from rackgate.nouns.measurement import Reason
from rackgate.nouns.sample import Outcome

PAIRS = 20
FASTER = 1.5
"""Speed-up of a repeated prompt's tokens above which they were not generated."""

_BURST_MS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatComparison:
    """Median time per token of first answers / that of repeated ones, or why it is unknown."""

    speed_up: float | None
    pairs: int
    detail: str = ""
    reason: Reason = Reason.TOO_FEW


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAudit:
    """The effect of caches: the load's share of prefix hits, and the decode speed-up of repeated prompts.

    Values are None where the engine has no counters or where too little was measured.
    """

    prefix_hit_share: float | None
    decode_speed_up: float | None
    answers_cached: bool | None
    detail: str = ""

    @property
    def text(self) -> str:
        """One line for a terminal."""
        share = self.prefix_hit_share
        prefix = "the engine tells no prefix-cache counters" if share is None else f"prefix hits {share:.1%}"
        if self.answers_cached is None:
            return f"{prefix}; answers: UNKNOWN, {self.detail}"
        said = "ANSWERS ARE CACHED" if self.answers_cached else "no answers cached"
        return f"{prefix}; {said} (tokens of a repeated prompt {self.decode_speed_up:.2f} x as fast)"


def audit_load(load: Load) -> Load:
    """Return a short load of the same lengths in which every prompt is sent twice."""
    return Load(
        name=f"{load.name}-audit", prompt_tokens=load.prompt_tokens, output_tokens=max(8, load.output_tokens),
        arrival=Arrival.CLOSED, concurrency=1, looks=(2 * PAIRS,), warmup_requests=1, limits=load.limits,
        repeats=2, protocol=load.protocol,
    )  # fmt: skip


def cache_audit(offered: OfferedLoad, audited: OfferedLoad) -> CacheAudit:
    """Return the audit from the counters of a load and from the load of repeated prompts."""
    counted = list(offered.prefix.values())
    queries = sum(one.queries for one in counted)
    share = sum(one.hits for one in counted) / queries if queries else None
    found = compare_repeats(None if audited.samples is None else audited.samples.measured, repeats=2)
    return CacheAudit(
        prefix_hit_share=share,
        decode_speed_up=found.speed_up,
        answers_cached=None if found.speed_up is None else found.speed_up > FASTER,
        detail=found.detail,
    )


def compare_repeats(table: SampleTable | None, *, repeats: int) -> RepeatComparison:
    """Return the speed-up of repeated prompts' tokens, by the medians over all pairs."""
    if table is None:
        return RepeatComparison(speed_up=None, pairs=0, detail="nothing was measured")
    first, repeated = _pairs(table, repeats)
    planned = len(table) // repeats
    if not len(first) or len(first) <= planned / 2:
        text = f"only {len(first)} of {planned} repeated prompts have two answers with tokens"
        return RepeatComparison(speed_up=None, pairs=len(first), detail=text)
    first_ms, repeated_ms = float(np.median(first)), float(np.median(repeated))
    if first_ms < _BURST_MS:
        text, reason = "a hop buffers the streams", Reason.UNSUPPORTED
        return RepeatComparison(speed_up=None, pairs=len(first), detail=text, reason=reason)
    text = f"per token {first_ms:.3g} ms, of repeated prompts {repeated_ms:.3g} ms"
    return RepeatComparison(speed_up=first_ms / max(repeated_ms, 1e-6), pairs=len(first), detail=text)


def _pairs(table: SampleTable, repeats: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the time per token (ms) of each prompt's first answer, and of its last repeat."""
    ids, ok = table.column("request_id").tolist(), table.labels("outcome").isin((Outcome.OK,))
    tokens = np.asarray(table.column("output_tokens"), dtype=float)
    spans = np.asarray(table.column("last_token_ns") - table.column("first_token_ns"), dtype=float) / 1e6
    usable = ok & (tokens > 1) & ~np.isnan(spans)
    per_token = {}
    for row in np.flatnonzero(usable).tolist():
        endpoint, _, number = ids[row].rpartition("-r")
        per_token[endpoint, int(number)] = spans[row] / (tokens[row] - 1)
    both = [
        (took, per_token[endpoint, number + repeats - 1])
        for (endpoint, number), took in per_token.items()
        if number % repeats == 0 and (endpoint, number + repeats - 1) in per_token
    ]
    first, repeated = zip(*both, strict=True) if both else ((), ())
    return np.array(first), np.array(repeated)
