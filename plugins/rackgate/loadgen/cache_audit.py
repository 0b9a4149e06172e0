"""Whether an engine's answers come from a cache: prompts that are sent twice, one right after the other.

A prefix cache shortens the first token only. Tokens that then come faster, too, were not generated.
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
"""Tokens that come so many times faster for a prompt that is known were not generated."""

_BURST_MS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatComparison:
    """Median time per token of first answers / that of the repeats.

    None, with `reason` and `detail`, where it is not known.
    """

    speed_up: float | None
    pairs: int
    detail: str = ""
    reason: Reason = Reason.TOO_FEW


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAudit:
    """What caches did. `prefix_hit_share` is that of the load; None where the engine does not say.

    `decode_speed_up` is that of repeated prompts; `answers_cached` is None where it could not be measured.
    """

    prefix_hit_share: float | None
    decode_speed_up: float | None
    answers_cached: bool | None
    detail: str = ""

    @property
    def text(self) -> str:
        """It in one line."""
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
    """Return what the counters of a load and its audit say together."""
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
    """Return how much faster the tokens of repeated prompts came, by the medians over all pairs."""
    if table is None:
        return RepeatComparison(speed_up=None, pairs=0, detail="nothing was measured")
    firsts, again = _pairs(table, repeats)
    planned = len(table) // repeats
    if not len(firsts) or len(firsts) <= planned / 2:
        text = f"only {len(firsts)} of {planned} repeated prompts have two answers with tokens"
        return RepeatComparison(speed_up=None, pairs=len(firsts), detail=text)
    first_ms, again_ms = float(np.median(firsts)), float(np.median(again))
    if first_ms < _BURST_MS:
        text, reason = "a hop buffers the streams", Reason.UNSUPPORTED
        return RepeatComparison(speed_up=None, pairs=len(firsts), detail=text, reason=reason)
    text = f"per token {first_ms:.3g} ms, of repeated prompts {again_ms:.3g} ms"
    return RepeatComparison(speed_up=first_ms / max(again_ms, 1e-6), pairs=len(firsts), detail=text)


def _pairs(table: SampleTable, repeats: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the time per token (ms) of each prompt's first answer, and of its last repeat."""
    ids, ok = table.column("request_id").tolist(), table.labels("outcome").isin((Outcome.OK,))
    tokens = np.asarray(table.column("output_tokens"), dtype=float)
    spans = np.asarray(table.column("last_token_ns") - table.column("first_token_ns"), dtype=float) / 1e6
    usable = ok & (tokens > 1) & ~np.isnan(spans)
    each = {}
    for row in np.flatnonzero(usable).tolist():
        lane, _, number = ids[row].rpartition("-r")
        each[lane, int(number)] = spans[row] / (tokens[row] - 1)
    both = [
        (took, each[lane, number + repeats - 1])
        for (lane, number), took in each.items()
        if number % repeats == 0 and (lane, number + repeats - 1) in each
    ]
    firsts, again = zip(*both, strict=True) if both else ((), ())
    return np.array(firsts), np.array(again)
