"""What is offered: prompt and output lengths, arrivals, stop rule, warm-up and seed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import StrEnum


class Arrival(StrEnum):
    """When requests start: a fixed number in flight, or by a schedule whatever the answers do."""

    CLOSED = "closed"
    CONSTANT = "constant"
    POISSON = "poisson"
    GAMMA = "gamma"
    TRACE = "trace"


class Origin(StrEnum):
    """The moment from which latency is counted."""

    SENT = "sent"
    SCHEDULED = "scheduled"


class Shape(StrEnum):
    """How lengths are distributed around their mean."""

    UNIFORM = "uniform"
    NORMAL = "normal"
    LOGNORMAL = "lognormal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Lengths around a mean, in tokens: the standard deviation, for `uniform` the half-width.

    What falls outside `least` and `most` is drawn as that limit.
    """

    shape: Shape
    deviation: float
    least: int = 1
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of an open load at one rate, or on a ramp from one rate to another."""

    duration_s: float
    rate_per_s: float
    to_rate_per_s: float | None = None

    @property
    def last_rate_per_s(self) -> float:
        """The rate at its end."""
        return self.rate_per_s if self.to_rate_per_s is None else self.to_rate_per_s

    @property
    def arrivals(self) -> float:
        """How many requests it offers on average."""
        return self.duration_s * (self.rate_per_s + self.last_rate_per_s) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a request is given up, in seconds; each names the phase that it bounds."""

    connect_s: float = 5.0
    first_token_s: float = 30.0
    stall_s: float = 30.0
    total_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load, frozen, from `[load.NAME]` of the acceptance file.

    A closed load holds `concurrency` requests in flight per engine until `looks[k]` requests per engine
    have run in total (look k of at most three, sizes fixed beforehand); they are brought up over
    `ramp_s`. An open load offers `rate_per_s` requests per engine for `duration_s`, or the rates of its
    `phases`, or starts at `arrivals_s` or the moments of its trace that come before `duration_s`, with at
    most `concurrency` in flight per engine; what exceeds the cap is counted as dropped. `burstiness` is
    the shape of gamma arrivals: 1 is Poisson, below it arrivals come in bursts. Warm-up requests come
    first and are not judged.

    `trace` is a file of requests in a public format; with the arrival `trace` its times are kept, sped up
    by `trace_speed`, else only its requests. With `turns` above 1 each arrival is a conversation of so
    many requests, each with all that was said before it, `think_s` after the answer. The first
    `shared_prefix_tokens` of a prompt are one of `shared_prefixes` texts. With `repeats` above 1 every
    prompt is sent so many times, each after the answer before it, which finds out who caches answers.
    `expect` is a regular expression that every answer has to match somewhere: one that does not is wrong.
    `protocol` is the one that this load is spoken in, whatever the engine's is. `workers` is the number of
    processes that offer it; None takes as many as its rate needs.
    """

    name: str
    prompt_tokens: int
    output_tokens: int
    arrival: Arrival = Arrival.CLOSED
    concurrency: int = 1
    rate_per_s: float | None = None
    duration_s: float | None = None
    looks: tuple[int, ...] = ()
    warmup_requests: int = 3
    workload: str = "assistant"
    seed: int = 1
    limits: Limits = field(default_factory=Limits)
    ttft_bound_ms: float | None = None
    tpot_bound_ms: float | None = None
    e2e_bound_ms: float | None = None
    burstiness: float = 1.0
    phases: tuple[Phase, ...] = ()
    arrivals_s: tuple[float, ...] = ()
    ramp_s: float = 0.0
    prompt_spread: Spread | None = None
    output_spread: Spread | None = None
    shared_prefix_tokens: int = 0
    shared_prefixes: int = 1
    turns: int = 1
    think_s: float = 0.0
    trace: str | None = None
    trace_format: str = "auto"
    trace_speed: float = 1.0
    trace_requests: int | None = None
    repeats: int = 1
    protocol: str | None = None
    context_tokens: int | None = None
    tokenizer: str | None = None
    expect: str | None = None
    workers: int | None = None

    @property
    def open(self) -> bool:
        """True if requests start by a schedule."""
        return self.arrival is not Arrival.CLOSED

    @property
    def origin(self) -> Origin:
        """Latency counts from the schedule in an open load, from sending in a closed one."""
        return Origin.SCHEDULED if self.open else Origin.SENT

    @property
    def planned_requests(self) -> int:
        """Requests per engine of the last look, warm-up excluded; 0 if a trace decides that is not read."""
        if not self.open:
            return self.looks[-1] if self.looks else 0
        if self.arrival is Arrival.TRACE:
            return sum(map(self.in_time, self.arrivals_s)) * self.turns or self.trace_requests or 0
        if self.phases:
            return round(sum(phase.arrivals for phase in self.phases)) * self.turns
        return round((self.rate_per_s or 0.0) * (self.duration_s or 0.0)) * self.turns

    def in_time(self, moment_s: float) -> bool:
        """Return whether an arrival of a trace, so long after its begin, comes before the load's end."""
        return self.duration_s is None or moment_s / self.trace_speed < self.duration_s

    @property
    def in_a_row(self) -> int:
        """How many requests are sent one after the other: the turns of a conversation, or repeats."""
        return max(self.turns, self.repeats)

    @property
    def plain(self) -> bool:
        """True if every request has the same lengths and stands alone."""
        varied = self.prompt_spread or self.output_spread or self.shared_prefix_tokens
        return not varied and self.turns == 1 and self.trace is None and self.tokenizer is None

    @property
    def problems(self) -> tuple[str, ...]:
        """Why this load cannot be offered, each with the field at fault; empty for a possible one."""
        return (
            *_bad_numbers(self),
            *_bad_phases(self),
            *_bad_arrivals(self),
            *_bad_lengths(self),
            *_bad_expectation(self),
        )


def _bad_numbers(load: Load) -> list[str]:
    found = [
        f"{name}: {getattr(load, name)} is below 1"
        for name in ("prompt_tokens", "output_tokens", "concurrency", "turns", "repeats", "shared_prefixes")
        if getattr(load, name) < 1
    ]
    found += [
        f"{name}: {getattr(load, name):g} is below 0 or infinite"
        for name in ("warmup_requests", "ramp_s", "think_s", "shared_prefix_tokens")
        if not 0 <= getattr(load, name) < math.inf
    ]
    for name in ("rate_per_s", "duration_s", "burstiness", "trace_speed"):
        value = getattr(load, name)
        if value is not None and not 0 < value < math.inf:
            found.append(f"{name}: {value:g} is not above 0 and finite")
    return found


def _bad_phases(load: Load) -> list[str]:
    found = []
    if load.phases and load.arrival in (Arrival.CLOSED, Arrival.TRACE):
        found.append(f"phases: a load with {load.arrival} arrivals has no rate")
    if load.phases and (load.rate_per_s is not None or load.duration_s is not None):
        found.append("phases: they have rates and durations of their own beside rate_per_s or duration_s")
    for number, phase in enumerate(load.phases):
        if not 0 < phase.duration_s < math.inf or not min(phase.rate_per_s, phase.last_rate_per_s) >= 0:
            found.append(f"phases[{number}]: a duration above 0 and rates of at least 0 are needed")
    if load.phases and not sum(phase.arrivals for phase in load.phases) >= 1:
        found.append("phases: they offer no request at all")
    return found


def _bad_arrivals(load: Load) -> list[str]:
    found = []
    if load.arrival is Arrival.TRACE and not load.arrivals_s and load.trace is None:
        found.append("arrival: trace arrivals need arrivals_s or a trace")
    if load.arrivals_s and (load.arrival is not Arrival.TRACE or load.trace is not None):
        found.append("arrivals_s: only for the arrival 'trace', and not beside a trace file")
    for number, (before, after) in enumerate(zip((0.0, *load.arrivals_s), load.arrivals_s, strict=False)):
        if not before <= after < math.inf:
            found.append(f"arrivals_s[{number}]: {after:g} s after {before:g} s: times go backwards")
            break
    if load.arrivals_s and not any(map(load.in_time, load.arrivals_s)):
        found.append(f"duration_s: {load.duration_s:g} s end before the first of arrivals_s")
    if load.arrival not in (Arrival.CLOSED, Arrival.TRACE) and load.rate_per_s and load.duration_s:
        offered = load.rate_per_s * load.duration_s
        if 0 < offered <= 0.5:
            text = f"{load.rate_per_s:g}/s for {load.duration_s:g} s are no request at all"
            found.append(f"duration_s: {text}")
    if load.ramp_s and load.open:
        found.append("ramp_s: it brings up a closed load; an open one has phases")
    return found


def _longest(mean: int, spread: Spread | None) -> int | None:
    """Return the longest length that can be drawn; None if there is no bound."""
    if spread is None:
        return mean
    longest = math.ceil(mean + spread.deviation) if spread.shape is Shape.UNIFORM else None
    limits = [one for one in (longest, spread.most) if one is not None]
    return max(spread.least, min(limits)) if limits else None


def _bad_expectation(load: Load) -> list[str]:
    try:
        re.compile(load.expect or "")
    except re.error as error:
        return [f"expect: {load.expect!r} is no regular expression: {error}"]
    return []


def _bad_lengths(load: Load) -> list[str]:
    found = []
    for name, spread in (("prompt_spread", load.prompt_spread), ("output_spread", load.output_spread)):
        if spread is None:
            continue
        if not 0 <= spread.deviation < math.inf:
            found.append(f"{name}.deviation: {spread.deviation:g} is below 0 or infinite")
        if spread.least < 1 or (spread.most is not None and spread.most < spread.least):
            found.append(f"{name}: no length is at least {max(spread.least, 1)} and at most {spread.most}")
    if load.shared_prefix_tokens and load.shared_prefix_tokens >= load.prompt_tokens:
        text = f"{load.shared_prefix_tokens} tokens leave nothing of a prompt of {load.prompt_tokens}"
        found.append(f"shared_prefix_tokens: {text}")
    if load.trace is not None and (load.turns > 1 or load.shared_prefix_tokens):
        found.append("trace: its requests are what they are: no turns and no shared prefix beside it")
    if load.repeats > 1 and (load.open or load.turns > 1 or load.trace is not None):
        found.append("repeats: only in a closed load, without turns or a trace")
    if load.context_tokens is not None:
        longest = {
            "prompt_spread": _longest(load.prompt_tokens, load.prompt_spread),
            "output_spread": _longest(load.output_tokens, load.output_spread),
        }
        text = f"without `most` a request may exceed the model's context of {load.context_tokens} tokens"
        found += [f"{name}: {text}" for name, most in longest.items() if most is None]
        needed = load.turns * sum(most or 0 for most in longest.values())
        if needed > load.context_tokens:
            text = f"{needed} tokens of prompt and output exceed the model's context of {load.context_tokens}"
            found.append(f"context_tokens: {text}")
    return found
