"""Whether caches answered in the engine's place: prefix-cache counters, and one prompt again and again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rackgate.load import Arrival, Load

if TYPE_CHECKING:
    from rackgate.loadgen.offered import OfferedLoad
    from rackgate.loadgen.prefix_cache import PrefixCounters

__all__ = ["CacheAudit", "compare", "loads_of"]

REQUESTS = 20
FASTER = 1.5
"""Tokens that come so many times faster for a prompt that is known were not generated."""

_BURST_MS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAudit:
    """What caches did. `prefix_hit_share` is that of the load; None where the engine does not say.

    `decode_speed_up` is the median time from first to last token with prompts of their own / with one
    prompt repeated; `answers_cached` is None where it could not be measured.
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


def loads_of(load: Load) -> tuple[Load, Load]:
    """Return two short loads of the same lengths: prompts of their own, and one prompt repeated."""
    alone = Load(
        name=f"{load.name}-audit", prompt_tokens=load.prompt_tokens, output_tokens=max(8, load.output_tokens),
        arrival=Arrival.CLOSED, concurrency=1, looks=(REQUESTS,), warmup_requests=1, limits=load.limits,
    )  # fmt: skip
    return alone, replace(alone, same_prompt=True)


def compare(
    before: PrefixCounters | None, after: PrefixCounters | None, alone: OfferedLoad, repeated: OfferedLoad
) -> CacheAudit:
    """Return what the counters and the two loads say together."""
    meanwhile = after.since(before) if before is not None and after is not None else None
    share = meanwhile.hits / meanwhile.queries if meanwhile is not None and meanwhile.queries else None
    times = [_decode_ms(offered) for offered in (alone, repeated)]
    if times[0] is None or times[1] is None or times[0] < _BURST_MS:
        bursts = times[0] is not None and times[0] < _BURST_MS
        why = "a hop buffers the streams" if bursts else "too few answers with tokens"
        return CacheAudit(prefix_hit_share=share, decode_speed_up=None, answers_cached=None, detail=why)
    speed_up = times[0] / max(times[1], 1e-6)
    return CacheAudit(prefix_hit_share=share, decode_speed_up=speed_up, answers_cached=speed_up > FASTER)


def _decode_ms(offered: OfferedLoad) -> float | None:
    """Return the median time from first to last token per token; the first request fills the caches."""
    if offered.samples is None:
        return None
    table = offered.samples.measured
    table = table.where(np.asarray(table.column("outcome"), dtype=str) == "ok")
    tokens = np.asarray(table.column("output_tokens"), dtype=float)
    spans = np.asarray(table.column("last_token_ns") - table.column("first_token_ns"), dtype=float) / 1e6
    known = (tokens > 1) & ~np.isnan(spans)
    return float(np.median((spans[known] / (tokens[known] - 1))[1:])) if known.sum() > REQUESTS // 2 else None
