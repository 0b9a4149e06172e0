"""`rackgate load --find-knee`: the highest rate at which an endpoint keeps the bounds of its requests."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from rackgate.cli.load import output as load_output
from rackgate.cli.load.load_runner import LoadRunner
from rackgate.loadgen.knee import KneeOutcome, Look, RateProbe, find_knee
from rackgate.loadgen.results.offered_load import OfferedLoad
from rackgate.loadgen.sizing import accepted_error_ms
from rackgate.metrics.requests.chosen import good_mask, lateness, unlike_the_engine
from rackgate.metrics.summary import error_p99
from rackgate.nouns.load import Load

_REQUESTS = 200


def check_searchable(load: Load) -> None:
    """Raise `ValueError` for a load whose rate cannot be searched."""
    if not any((load.ttft_bound_ms, load.tpot_bound_ms, load.e2e_bound_ms)):
        raise ValueError("--find-knee needs --slo-ttft-ms, --slo-tpot-ms or --slo-e2e-ms")
    if load.trace is not None or load.phases:
        raise ValueError("--find-knee chooses the rate itself: a trace or a phase has its own")


def search_knee(load: Load, runner: LoadRunner, options: argparse.Namespace) -> int:
    """Search the knee, print its curve and the result, and return the exit status.

    Each probe has its own prompts: those of another rate would still be in the engine's caches. A probe is
    offered once more if the load generator was late.
    """
    limit_ms = accepted_error_ms([load.ttft_bound_ms] if load.ttft_bound_ms else [])
    probes: list[RateProbe] = []

    def offer(rate_per_s: float, look: int) -> Look:
        requests = options.requests or _REQUESTS
        probe = replace(load, rate_per_s=rate_per_s, duration_s=requests / load.turns / rate_per_s)
        label = f"probe{len(probes)}"
        offered, interrupted = runner.offer(probe, label=label, look=look)
        if not interrupted and lateness((offered,), limit_ms):  # a late probe shows nothing of the rate
            offered, interrupted = runner.offer(probe, label=f"{label}.again", look=look)
        return _look_of(offered, limit_ms, interrupted=interrupted)

    def print_probe(probe: RateProbe) -> None:
        probes.append(probe)
        if not options.json:
            sys.stdout.write(load_output.probe_line(probe))
            sys.stdout.flush()

    knee = find_knee(
        offer,
        first_per_s=options.rate,
        most_per_s=max(options.most_rate, options.rate),
        least_per_s=options.rate / 16,
        share=options.share,
        resolution=options.resolution,
        on_probe=print_probe,
    )
    instrument = None
    if knee.rate_per_s is not None and not options.no_selfcheck and not options.ray:
        instrument = runner.measure_instrument(replace(load, rate_per_s=knee.rate_per_s))
    error = load_output.TtftError(*error_p99(instrument), limit_ms)
    render = load_output.knee_json if options.json else load_output.knee_text
    sys.stdout.write(render(knee, load, runner.seed, error))
    return 0 if error.accepted and knee.found in (KneeOutcome.KNEE, KneeOutcome.AT_LEAST) else 1


def _look_of(offered: OfferedLoad, limit_ms: float, *, interrupted: bool) -> Look:
    """Return the result of a probe; an interrupted, late or cached one has none."""
    why = "interrupted" if interrupted else offered.detail if offered.reason is not None else ""
    if not why and not offered.counters.reconciles:
        why = "the counters do not reconcile"
    why = why or ("" if offered.samples is None else unlike_the_engine((offered,), limit_ms))
    if why or offered.samples is None:
        return Look(good=0, attempted=0, aborted=why or "no samples")
    table = offered.samples.measured
    attempted = int((table.column("outcome") != "cancelled").sum())
    return Look(good=int(good_mask(table, offered.load).sum()), attempted=attempted)
