"""Knee search: the highest rate at which an endpoint meets its bounds, by doubling and bisection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt

from rackgate.nouns.measurement import Bounds
from rackgate.nouns.slo import Op
from rackgate.nouns.verdict import Verdict
from rackgate.statistics.looks import MOST_LOOKS, decide_by_bounds, look_confidence
from rackgate.statistics.proportions import proportion_bounds


class KneeOutcome(StrEnum):
    """The outcome of a knee search."""

    KNEE = "knee"
    AT_LEAST = "at_least"
    NONE = "none"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Good and attempted requests of one load at a rate, or why the load does not count."""

    good: int
    attempted: int
    aborted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateProbe:
    """The sum of all looks at one rate; `verdict` is UNKNOWN if they are inconclusive or aborted."""

    rate_per_s: float
    good: int
    attempted: int
    verdict: Verdict
    bounds: Bounds
    aborted: str = ""

    @property
    def share(self) -> float | None:
        """Good / attempted."""
        return self.good / self.attempted if self.attempted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The probes of a search in their order, and its outcome.

    `rate_per_s` is the highest rate that met the bounds, `too_high_per_s` the lowest that missed them; each
    is None if there is none.
    """

    found: KneeOutcome
    share: float
    probes: tuple[RateProbe, ...]
    rate_per_s: float | None = None
    too_high_per_s: float | None = None
    detail: str = ""


def find_knee(
    run_load: Callable[[float, int], Look],
    *,
    first_per_s: float,
    most_per_s: float,
    least_per_s: float = 0.1,
    share: float = 0.95,
    resolution: float = 0.1,
    on_probe: Callable[[RateProbe], object] = lambda _probe: None,
) -> Knee:
    """Search for the highest rate at which at least `share` of the requests are good.

    `run_load(rate, look)` runs one load. A rate meets the bounds if the exact (Clopper-Pearson) lower bound
    of its share is at or above `share`, and misses them if the upper bound is below it; else it gets another
    look, at most three. An aborted or inconclusive probe ends the search unresolved. Raises `ValueError` for
    invalid rates or shares.
    """
    if not 0 < least_per_s <= first_per_s <= most_per_s or not 0 < share < 1 or not resolution > 0:
        raise ValueError("0 < least <= first <= most, 0 < share < 1 and a resolution above 0 are needed")
    probes: list[RateProbe] = []
    for rate in _rates(probes, first_per_s, least_per_s, most_per_s, resolution):
        probe = _probe(run_load, rate, share)
        probes.append(probe)
        on_probe(probe)
        if probe.verdict is Verdict.UNKNOWN:
            break
    low = max((one.rate_per_s for one in probes if one.verdict is Verdict.PASS), default=None)
    high = min((one.rate_per_s for one in probes if one.verdict is Verdict.FAIL), default=None)
    found, detail = _conclusion(probes[-1], low, high, least_per_s, most_per_s)
    return Knee(
        found=found, share=share, probes=tuple(probes), rate_per_s=low, too_high_per_s=high, detail=detail
    )


def _rates(
    probes: list[RateProbe], first: float, least: float, most: float, resolution: float
) -> Iterator[float]:
    """Yield the next rate to try, given the probes so far."""
    rate = first
    yield rate
    first_verdict = probes[-1].verdict
    while first_verdict is Verdict.PASS and probes[-1].verdict is Verdict.PASS and rate < most:
        rate = min(rate * 2, most)
        yield rate
    while first_verdict is Verdict.FAIL and probes[-1].verdict is Verdict.FAIL and rate > least:
        rate = max(rate / 2, least)
        yield rate
    while bounds := _between(probes):
        low, high = bounds
        if high / low <= 1 + resolution:
            return
        yield sqrt(low * high)


def _between(probes: list[RateProbe]) -> tuple[float, float] | None:
    """Return the highest rate that met the bounds and the lowest that missed them, None if one is missing."""
    met = [one.rate_per_s for one in probes if one.verdict is Verdict.PASS]
    missed = [one.rate_per_s for one in probes if one.verdict is Verdict.FAIL]
    return (max(met), min(missed)) if met and missed and max(met) < min(missed) else None


def _probe(run_load: Callable[[float, int], Look], rate: float, share: float) -> RateProbe:
    good = attempted = 0
    verdict = Verdict.UNKNOWN
    aborted = ""
    for number in range(MOST_LOOKS):
        look = run_load(rate, number)
        if look.aborted:
            aborted = look.aborted
            break
        good += look.good
        attempted += look.attempted
        bounds = proportion_bounds(good, attempted, look_confidence(MOST_LOOKS))
        holds = decide_by_bounds(bounds, share, Op.AT_LEAST)
        if holds is not None:
            verdict = Verdict.PASS if holds else Verdict.FAIL
            break
    return RateProbe(
        rate_per_s=rate,
        good=good,
        attempted=attempted,
        verdict=verdict,
        bounds=proportion_bounds(good, attempted),
        aborted=aborted,
    )


def _conclusion(
    last: RateProbe, low: float | None, high: float | None, least: float, most: float
) -> tuple[KneeOutcome, str]:
    if last.verdict is Verdict.UNKNOWN:
        why = last.aborted or f"{last.good} of {last.attempted} good leave it open"
        return KneeOutcome.UNRESOLVED, f"at {last.rate_per_s:g}/s: {why}"
    if low is None:
        return KneeOutcome.NONE, f"not even {least:g}/s meets the bounds"
    if high is None:
        return KneeOutcome.AT_LEAST, f"{most:g}/s, the highest rate tried, still meets the bounds"
    return KneeOutcome.KNEE, ""
