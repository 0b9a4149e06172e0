"""`rackgate load`: offer one load to any endpoint, and print its numbers with their bounds."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackgate.cli.load.load_options import add_load_options, load_from_options
from rackgate.engines.route_options import add_route_options

if TYPE_CHECKING:
    from rackgate.cli.load.load_runner import LoadRunner
    from rackgate.nouns.load import Load


_SEEDS = 1 << 31


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("load", help="offer one load to an endpoint", description=__doc__)
    parser.add_argument("url", metavar="URL", help="http(s)://host:port, without /v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--protocol", help="default: openai, or the workload's (all of them: docs/loads.md)")
    parser.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the key")
    add_route_options(parser.add_argument_group("the route to the endpoint"))
    add_load_options(parser.add_argument_group("what is offered"))
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
    parser.add_argument("--audit", action="store_true", help="also find out whether answers are cached")
    parser.add_argument(
        "--no-selfcheck", action="store_true", help="do not measure the load generator's own error (3 s)"
    )
    parser.add_argument("--samples", type=Path, metavar="FILE", help="keep every request (Parquet)")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from secrets import randbelow

    from rackgate.cli.load.knee import check_searchable, search_knee
    from rackgate.cli.load.load_runner import (
        LoadRunner,
        endpoint_from_options,
        machines_from_options,
        with_context_of,
    )

    try:
        endpoint = endpoint_from_options(options)
        if options.find_knee:
            options.rate = options.rate if options.rate is not None else 1.0
        options.seed = options.seed if options.seed is not None else randbelow(_SEEDS)
        load = load_from_options(options)
        if options.find_knee:
            check_searchable(load)
        machines = machines_from_options(options)
        load = with_context_of(load, endpoint)
        with tempfile.TemporaryDirectory(prefix="rackgate-load-") as folder:
            runner = LoadRunner(endpoint, Path(folder), options.seed, machines)
            return (
                search_knee(load, runner, options)
                if options.find_knee
                else _offer_once(load, runner, options)
            )
    except ValueError as error:
        sys.stderr.write("".join(f"rackgate load: {line}\n" for line in str(error).splitlines()))
        return 4
    except KeyboardInterrupt:
        sys.stderr.write("rackgate load: interrupted before anything was measured\n")
        return 2


def _offer_once(load: Load, runner: LoadRunner, options: argparse.Namespace) -> int:
    from rackgate.cli.load import output as load_output
    from rackgate.loadgen.cache_audit import audit_load, cache_audit
    from rackgate.loadgen.sizing import accepted_error_ms
    from rackgate.metrics.summary import numbers_of

    offered, interrupted = runner.offer(
        load, label="command", samples=options.samples, requests=options.requests
    )
    audit = instrument = None
    if options.audit and not interrupted:
        audited, interrupted = runner.offer(audit_load(load), label="audit")
        audit = cache_audit(offered, audited)
    if not options.no_selfcheck and not interrupted and offered.reason is None and not options.ray:
        instrument = runner.measure_instrument(load)
    limit_ms = accepted_error_ms([load.ttft_bound_ms] if load.ttft_bound_ms else [])
    numbers = numbers_of(offered, lag_limit_ms=limit_ms, instrument=instrument)
    result = load_output.Result(
        offered=offered, numbers=numbers, seed=runner.seed, interrupted=interrupted, audit=audit
    )
    sys.stdout.write(load_output.as_json(result) if options.json else load_output.as_text(result))
    if interrupted:
        return 2
    if offered.reason is not None:
        return 3
    return int(result.untrue != "" or any(verdict != "PASS" for verdict, _ in result.verdicts.values()))
