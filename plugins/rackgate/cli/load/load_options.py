"""Load options of `rackgate load`, and the load that they describe."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackgate.nouns.load import Limits, Load, Phase, Spread


_REQUESTS = 200
_LIMITS = ("connect", "first_token", "stall", "total")


def add_load_options(group: Any) -> None:
    """Add the options."""
    group.add_argument("--workload", metavar="CLASS", help="lengths of a class of work (see docs)")
    group.add_argument("--concurrency", type=int, help="in flight; with --rate the cap (default: 8; 512)")
    group.add_argument("--rate", type=float, metavar="PER_S", help="an open load: Poisson arrivals")
    group.add_argument(
        "--phase", action="append", default=[], metavar="S@RATE[:RATE]", dest="phases",
        help="an open load in steps and ramps, one for each: 60@5, or 30@5:50",
    )  # fmt: skip
    group.add_argument("--arrival", choices=("constant", "poisson", "gamma", "trace"))
    group.add_argument("--burstiness", type=float, default=1.0)
    group.add_argument("--requests", type=int, help="default: 200")
    group.add_argument("--duration", type=float, metavar="S", help="with --requests: what comes first")
    group.add_argument("--ramp", type=float, default=0.0, metavar="S", help="bring a closed load up slowly")
    group.add_argument("--prompt-tokens", type=int, help="default: 128")
    group.add_argument("--output-tokens", type=int, help="default: 32")
    for name in ("prompt", "output"):
        group.add_argument(
            f"--{name}-spread", metavar="SHAPE:DEVIATION[:LEAST:MOST]",
            help="uniform, normal or lognormal lengths around the mean",
        )  # fmt: skip
    group.add_argument("--shared-prefix-tokens", type=int, default=0)
    group.add_argument("--turns", type=int, default=1, help="requests of one conversation")
    group.add_argument("--think", type=float, default=0.0, metavar="S", help="pause between turns")
    group.add_argument("--trace", metavar="FILE", help="Mooncake, Azure, BurstGPT or ShareGPT")
    group.add_argument("--trace-speed", type=float, default=1.0)
    group.add_argument("--context-tokens", type=int, help="the model's context (default: as /v1/models says)")
    group.add_argument("--workers", type=int, help="processes that offer it (default: as its rate needs)")
    group.add_argument("--expect", metavar="REGEX", help="what every answer has to match: else it is wrong")
    group.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json: exact prompt lengths")
    group.add_argument("--warmup", type=int, default=3, metavar="REQUESTS")
    group.add_argument("--seed", type=int, help="that a call told: the same requests again")
    for name in _LIMITS:
        group.add_argument(f"--{name.replace('_', '-')}-limit", type=float, metavar="S", help="give up then")


def load_from_options(options: argparse.Namespace) -> Load:
    """Return the load that the options describe. Raises `ValueError`."""
    from rackgate.nouns.load import Arrival

    workload = _workload(options)
    phases = tuple(map(_phase, options.phases))
    timed = options.trace is not None and options.rate is None and not phases and options.concurrency is None
    by_rate = options.rate is not None or phases
    arrival = Arrival(options.arrival or ("poisson" if by_rate else "trace" if timed else "closed"))
    if arrival is not Arrival.CLOSED and arrival is not Arrival.TRACE and not by_rate:
        raise ValueError(f"{arrival} arrivals need --rate or --phase")
    cap = 512 if arrival is not Arrival.CLOSED else workload.concurrency if options.workload else 8
    load = replace(
        workload,
        **_lengths(options),
        arrival=arrival,
        concurrency=options.concurrency if options.concurrency is not None else cap,
        rate_per_s=options.rate,
        phases=phases,
        burstiness=options.burstiness,
        ramp_s=options.ramp,
        shared_prefix_tokens=options.shared_prefix_tokens,
        turns=options.turns,
        think_s=options.think,
        trace=options.trace,
        trace_speed=options.trace_speed,
        context_tokens=options.context_tokens,
        expect=options.expect,
        tokenizer=options.tokenizer,
        workers=options.workers,
        warmup_requests=options.warmup,
        seed=options.seed,
        limits=_limits(workload.limits, options),
        protocol=options.protocol or workload.protocol,
        ttft_bound_ms=options.slo_ttft_ms,
        tpot_bound_ms=options.slo_tpot_ms,
        e2e_bound_ms=options.slo_e2e_ms,
    )
    return _with_stop_rule(load, options)


def _workload(options: argparse.Namespace) -> Load:
    from rackgate.nouns.load import Load

    if options.workload is None:
        return Load(name="load", prompt_tokens=128, output_tokens=32)
    from rackgate.config.acceptance_file import workloads

    if options.workload not in workloads():
        raise ValueError(f"no workload {options.workload!r}; valid: {', '.join(workloads())}")
    return workloads()[options.workload]


def _lengths(options: argparse.Namespace) -> Mapping[str, Any]:
    """Return the given lengths; a mean without a spread is the length of every request."""
    found: dict[str, Any] = {}
    for name in ("prompt", "output"):
        tokens, spread = getattr(options, f"{name}_tokens"), getattr(options, f"{name}_spread")
        if tokens is not None:
            found |= {f"{name}_tokens": tokens, f"{name}_spread": None}
        if spread is not None:
            found[f"{name}_spread"] = _spread(spread, f"--{name}-spread")
    return found


def _spread(text: str, option: str) -> Spread:
    from rackgate.nouns.load import Shape, Spread

    shape, _, rest = text.partition(":")
    numbers = rest.split(":")
    try:
        least = int(numbers[1]) if len(numbers) > 1 else 1
        most = int(numbers[2]) if len(numbers) > 2 else None
        return Spread(shape=Shape(shape), deviation=float(numbers[0]), least=least, most=most)
    except ValueError:
        valid = "|".join(Shape)
        raise ValueError(f"{option}: {text!r} is not {valid}:DEVIATION[:LEAST:MOST]") from None


def _phase(text: str) -> Phase:
    from rackgate.nouns.load import Phase

    seconds, _, rates = text.partition("@")
    first, colon, last = rates.partition(":")
    try:
        return Phase(
            duration_s=float(seconds), rate_per_s=float(first), to_rate_per_s=float(last) if colon else None
        )
    except ValueError:
        raise ValueError(f"--phase: {text!r} is not SECONDS@RATE or SECONDS@RATE:RATE") from None


def _limits(known: Limits, options: argparse.Namespace) -> Limits:
    given = {name: getattr(options, f"{name}_limit") for name in _LIMITS}
    for name, value in given.items():
        if value is not None and not value > 0:
            raise ValueError(f"--{name.replace('_', '-')}-limit: {value:g} is not above 0")
    return replace(known, **{f"{name}_s": value for name, value in given.items() if value is not None})


def _with_stop_rule(load: Load, options: argparse.Namespace) -> Load:
    """Return the load with its stop rule: a number of requests, a duration, or a whole trace."""
    requests, duration_s = options.requests, options.duration
    if requests is not None and requests < 1:
        raise ValueError(f"--requests: {requests} is below 1")
    if duration_s is not None and not duration_s > 0:
        raise ValueError(f"--duration: {duration_s:g} is not above 0")
    if load.phases:
        return replace(load, duration_s=duration_s, looks=())
    if requests is None and duration_s is None and load.trace is None:
        requests = _REQUESTS
    if load.open and load.rate_per_s and load.rate_per_s > 0 and load.trace is None:
        if duration_s is None:
            duration_s = (requests or 0) / load.turns / load.rate_per_s
        return replace(load, duration_s=duration_s, looks=())
    return replace(load, duration_s=duration_s, looks=(requests,) if requests else ())
