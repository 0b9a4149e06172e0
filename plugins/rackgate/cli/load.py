"""`rackgate load`: offer one load to any endpoint, and print its numbers with their bounds."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackgate.engines.route_options import add_route_options, route_of

if TYPE_CHECKING:
    import argparse

    from rackgate.load import Load
    from rackgate.loadgen import Endpoint, OfferedLoad
    from rackgate.loadgen.cache_audit import CacheAudit
    from rackgate.loadgen.knee import Knee, Look
    from rackgate.loadgen.prefix_cache import MetricsPage, PrefixCounters
    from rackgate.target import LoadMachines

__all__ = ["add_parser", "endpoint_of", "load_of", "machines_of"]

_LAG_LIMIT_MS = 10.0
_PLAIN = {"prompt_tokens": 128, "output_tokens": 32, "requests": 200, "concurrency": 8}


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("load", help="offer one load to an endpoint", description=__doc__)
    parser.add_argument("url", metavar="URL", help="http(s)://host:port, without /v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--protocol", default="openai", help="default: openai (all of them: docs/loads.md)")
    parser.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the key")
    add_route_options(parser.add_argument_group("the route to the endpoint"))
    _add_shape(parser.add_argument_group("what is offered"))
    bounds = parser.add_argument_group("bounds of one request (exit status 1 if the P99 does not keep them)")
    for name in ("ttft", "tpot", "e2e"):
        bounds.add_argument(f"--slo-{name}-ms", type=float, metavar="MS")
    knee = parser.add_argument_group("the knee: the highest rate that keeps the bounds")
    knee.add_argument("--find-knee", action="store_true", help="search from --rate on (default: 1/s)")
    knee.add_argument("--share", type=float, default=0.95, help="of requests that keep them (default: 0.95)")
    knee.add_argument("--most-rate", type=float, default=1000.0, metavar="PER_S")
    knee.add_argument("--resolution", type=float, default=0.1, help="default: 0.1 of the rate")
    where = parser.add_argument_group("where it comes from (default: this machine)")
    where.add_argument("--ray", metavar="HOST:PORT", help="a Ray cluster whose nodes offer the load")
    where.add_argument("--ray-nodes", metavar="NAME[,NAME]", help="only these nodes (default: all)")
    parser.add_argument("--audit", action="store_true", help="also find out what caches did")
    parser.add_argument("--samples", type=Path, metavar="FILE", help="keep every request (Parquet)")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=_run)


def _add_shape(group: Any) -> None:
    group.add_argument("--workload", metavar="CLASS", help="lengths of a class of work (see docs)")
    group.add_argument("--concurrency", type=int, help="in flight; with --rate the cap (default: 8; 512)")
    group.add_argument("--rate", type=float, metavar="PER_S", help="an open load: Poisson arrivals")
    group.add_argument("--arrival", choices=("constant", "poisson", "gamma", "trace"))
    group.add_argument("--burstiness", type=float, default=1.0)
    group.add_argument("--requests", type=int, help="default: 200")
    group.add_argument("--duration", type=float, metavar="S")
    group.add_argument("--ramp", type=float, default=0.0, metavar="S", help="bring a closed load up slowly")
    group.add_argument("--prompt-tokens", type=int, help="default: 128")
    group.add_argument("--output-tokens", type=int, help="default: 32")
    group.add_argument("--shared-prefix-tokens", type=int, default=0)
    group.add_argument("--turns", type=int, default=1, help="requests of one conversation")
    group.add_argument("--think", type=float, default=0.0, metavar="S", help="pause between turns")
    group.add_argument("--trace", metavar="FILE", help="Mooncake, Azure, BurstGPT or ShareGPT")
    group.add_argument("--trace-speed", type=float, default=1.0)
    group.add_argument("--context-tokens", type=int, help="the model's context; longer requests are refused")
    group.add_argument("--workers", type=int, help="processes that offer it (default: as its rate needs)")
    group.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json: exact prompt lengths")
    group.add_argument("--warmup", type=int, default=3, metavar="REQUESTS")
    group.add_argument("--seed", type=int, default=1)


def load_of(options: argparse.Namespace) -> Load:
    """Return the load that the options describe. Raises `ValueError`."""
    from rackgate.load import Arrival, Load
    from rackgate.loadgen.workloads import WORKLOADS

    if options.workload is not None and options.workload not in WORKLOADS:
        raise ValueError(f"no workload {options.workload!r}; valid: {', '.join(WORKLOADS)}")
    known = WORKLOADS.get(options.workload) or Load(
        name="load", prompt_tokens=_PLAIN["prompt_tokens"], output_tokens=_PLAIN["output_tokens"]
    )
    timed = options.trace is not None and options.rate is None and options.concurrency is None
    kind = options.arrival or ("poisson" if options.rate is not None else "trace" if timed else "closed")
    arrival = Arrival(kind)
    if arrival is not Arrival.CLOSED and arrival is not Arrival.TRACE and options.rate is None:
        raise ValueError(f"{arrival} arrivals need --rate")
    given = {
        name: getattr(options, name)
        for name in ("prompt_tokens", "output_tokens")
        if getattr(options, name) is not None
    }
    given |= {name.replace("tokens", "spread"): None for name in given}
    cap = 512 if arrival is not Arrival.CLOSED else known.concurrency if options.workload else 8
    load = replace(
        known,
        **given,
        arrival=arrival,
        concurrency=options.concurrency if options.concurrency is not None else cap,
        rate_per_s=options.rate,
        burstiness=options.burstiness,
        ramp_s=options.ramp,
        shared_prefix_tokens=options.shared_prefix_tokens,
        turns=options.turns,
        think_s=options.think,
        trace=options.trace,
        trace_speed=options.trace_speed,
        context_tokens=options.context_tokens,
        tokenizer=options.tokenizer,
        workers=options.workers,
        warmup_requests=options.warmup,
        seed=options.seed,
        ttft_bound_ms=options.slo_ttft_ms,
        tpot_bound_ms=options.slo_tpot_ms,
        e2e_bound_ms=options.slo_e2e_ms,
    )
    return _with_end(load, options)


def _with_end(load: Load, options: argparse.Namespace) -> Load:
    """Return the load with its stop rule: a number of requests, a duration, or a whole trace."""
    requests, duration_s = options.requests, options.duration
    if requests is not None and requests < 1:
        raise ValueError(f"--requests: {requests} is below 1")
    if duration_s is not None and not duration_s > 0:
        raise ValueError(f"--duration: {duration_s:g} is not above 0")
    if requests is None and duration_s is None and load.trace is None:
        requests = _PLAIN["requests"]
    if load.open and load.rate_per_s and load.rate_per_s > 0 and load.trace is None:
        duration_s = duration_s if duration_s is not None else (requests or 0) / load.rate_per_s
        return replace(load, duration_s=duration_s)
    return replace(load, duration_s=duration_s, looks=(requests,) if requests else ())


def endpoint_of(options: argparse.Namespace) -> Endpoint:
    """Return where the load goes. Raises `ValueError`."""
    from rackgate.engines.protocol import protocol_named
    from rackgate.loadgen import Endpoint
    from rackgate.loadgen.transport import Server

    Server.of(options.url)
    protocol_named(options.protocol)
    route = route_of(options)
    headers = dict(route.headers)
    if options.api_key_env is not None:
        key = os.environ.get(options.api_key_env)
        if not key:
            raise ValueError(f"--api-key-env: the environment variable {options.api_key_env} is not set")
        headers["Authorization"] = f"Bearer {key}"
    url = options.url.rstrip("/").removesuffix("/v1")
    return Endpoint(
        entity="endpoint",
        url=url,
        model=options.model,
        protocol=options.protocol,
        headers=headers,
        route=route,
    )


def machines_of(options: argparse.Namespace) -> LoadMachines | None:
    """Return the load machines, None for this one. Raises `ValueError`."""
    from rackgate.loadgen.machines import address_of
    from rackgate.target import LoadMachines

    if options.ray is None:
        if options.ray_nodes is not None:
            raise ValueError("--ray-nodes needs --ray")
        return None
    address_of(options.ray)
    return LoadMachines(ray=options.ray, nodes=tuple(filter(None, (options.ray_nodes or "").split(","))))


def _run(options: argparse.Namespace) -> int:
    try:
        endpoint = endpoint_of(options)
        if options.find_knee:
            options.rate = options.rate if options.rate is not None else 1.0
        load = load_of(options)
        with tempfile.TemporaryDirectory(prefix="rackgate-load-") as folder:
            path = options.samples or Path(folder) / "samples.parquet"
            goes = _Way(endpoint=endpoint, path=path, machines=machines_of(options))
            if options.find_knee:
                return _find_knee(load, goes, options)
            return _one(load, goes, options)
    except ValueError as error:
        sys.stderr.write("".join(f"rackgate load: {line}\n" for line in str(error).splitlines()))
        return 4
    except KeyboardInterrupt:
        sys.stderr.write("rackgate load: interrupted before anything was measured\n")
        return 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """Where a load goes, where its samples go, and where it comes from."""

    endpoint: Endpoint
    path: Path
    machines: LoadMachines | None


def _one(load: Load, goes: _Way, options: argparse.Namespace) -> int:
    from rackgate.cli import load_output
    from rackgate.loadgen.prefix_cache import prefix_counters
    from rackgate.metrics.summary import numbers_of

    before = prefix_counters(_page(goes.endpoint)) if options.audit else None
    offered, interrupted = _offer(load, goes, seed=options.seed, requests=options.requests)
    audit = _audit(load, goes, before, options.seed) if options.audit and not interrupted else None
    numbers = numbers_of(offered, lag_limit_ms=_LAG_LIMIT_MS)
    kept = load_output.kept_bounds(load, numbers, interrupted=interrupted)
    if options.json:
        said = load_output.as_json(offered, numbers, kept, interrupted=interrupted, audit=audit) + "\n"
    else:
        said = load_output.as_text(offered, numbers, kept, interrupted=interrupted, audit=audit)
    sys.stdout.write(said)
    if interrupted:
        return 2
    if offered.reason is not None:
        return 3
    return int(any(verdict != "PASS" for verdict, _ in kept.values()))


def _page(endpoint: Endpoint) -> MetricsPage:
    from rackgate.loadgen.prefix_cache import MetricsPage

    return MetricsPage(url=f"{endpoint.url}/metrics", headers=endpoint.headers, route=endpoint.route)


def _audit(load: Load, goes: _Way, before: PrefixCounters | None, seed: int) -> CacheAudit:
    """Return what the prefix cache did during the load, and whether answers are cached."""
    from rackgate.loadgen import cache_audit
    from rackgate.loadgen.prefix_cache import prefix_counters

    after = prefix_counters(_page(goes.endpoint))
    alone, repeated = (
        _offer(one, replace(goes, path=goes.path.with_name(f"audit{number}.parquet")), seed=seed + 1)[0]
        for number, one in enumerate(cache_audit.loads_of(load))
    )
    return cache_audit.compare(before, after, alone, repeated)


def _offer(
    load: Load, goes: _Way, *, seed: int, requests: int | None = None, look: int = 0
) -> tuple[OfferedLoad, bool]:
    """Return what was measured, and whether Ctrl-C ended it."""
    from rackgate.loadgen import start_load
    from rackgate.loadgen.progress import StreamTeller, watch

    label = "command" if look == 0 else f"look{look}"
    asked = requests if load.trace is not None else None
    with start_load(
        load, [goes.endpoint], label=label, samples_path=goes.path, seed=seed, look=look, requests=asked,
        warmup=look == 0, machines=goes.machines,
    ) as running:  # fmt: skip
        try:
            watch(running, load, StreamTeller(sys.stderr))
        except KeyboardInterrupt:
            running.cancel()
            return running.finish(load.limits.connect_s + 10.0), True
        return running.finish(), False


def _find_knee(load: Load, goes: _Way, options: argparse.Namespace) -> int:
    from rackgate.cli import load_output
    from rackgate.loadgen.knee import Found, find_knee

    if not any((load.ttft_bound_ms, load.tpot_bound_ms, load.e2e_bound_ms)):
        raise ValueError("--find-knee needs --slo-ttft-ms, --slo-tpot-ms or --slo-e2e-ms")
    if load.trace is not None:
        raise ValueError("--find-knee chooses the rate itself: a trace has its own")
    problems = load.problems
    if problems:
        raise ValueError("\n".join(problems))

    def offer(rate_per_s: float, look: int) -> Look:
        probe = replace(load, rate_per_s=rate_per_s, duration_s=(options.requests or 200) / rate_per_s)
        offered, interrupted = _offer(probe, goes, seed=options.seed, look=look)
        return _look_of(offered, interrupted=interrupted)

    knee: Knee = find_knee(
        offer,
        first_per_s=options.rate,
        most_per_s=max(options.most_rate, options.rate),
        least_per_s=options.rate / 16,
        share=options.share,
        resolution=options.resolution,
        on_probe=lambda probe: None if options.json else sys.stdout.write(load_output.probe_line(probe)),
    )
    sys.stdout.write(
        load_output.knee_json(knee) + "\n" if options.json else load_output.knee_text(knee, load)
    )
    return 0 if knee.found in (Found.KNEE, Found.AT_LEAST) else 1


def _look_of(offered: OfferedLoad, *, interrupted: bool) -> Look:
    from rackgate.loadgen.knee import Look
    from rackgate.metrics.requests import good_mask
    from rackgate.metrics.summary import numbers_of

    why = "interrupted" if interrupted else offered.detail if offered.reason is not None else ""
    if not why and not offered.counters.reconciles:
        why = "the counters do not reconcile"
    if why or offered.samples is None:
        return Look(good=0, attempted=0, aborted=why or "no samples")
    numbers = numbers_of(offered, lag_limit_ms=_LAG_LIMIT_MS)
    if not numbers.exact:
        late = max(numbers.schedule_lag_p99_ms or 0.0, numbers.loop_lag_p99_ms or 0.0)
        return Look(good=0, attempted=0, aborted=f"the load generator was {late:.1f} ms late (P99)")
    table = offered.samples.measured
    attempted = int((table.column("outcome") != "cancelled").sum())
    return Look(good=int(good_mask(table, offered.load).sum()), attempted=attempted)
