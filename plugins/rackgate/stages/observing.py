"""Observation of a stage with loads: the loads, the telemetry of their window, probes and faults."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

from rackgate.metrics.observation import LoadRun, Observation
from rackgate.nouns.fault import FaultTimeline
from rackgate.run.run import Run
from rackgate.stages.economy import record_economy
from rackgate.stages.headline_metrics import record_headline_metrics
from rackgate.stages.load_runs import lag_limit_ms
from rackgate.stages.probe_runs import run_probes
from rackgate.stages.site import Site
from rackgate.telemetry.sampler import Sampler

_PATIENCE_S = 3.0


def observe(
    run: Run,
    site: Site,
    stage: str,
    load_runs: Sequence[LoadRun],
    telemetry: Sampler,
    *,
    faults: tuple[FaultTimeline, ...] = (),
) -> Observation:
    """Return the observation of a stage with the telemetry of its loads; record the headline metrics.

    The probes of its rows are run after its loads.
    """
    looks = [look for load_run in load_runs for look in load_run.looks if look.end_ns]
    start_ns = min((look.start_ns for look in looks), default=time.perf_counter_ns())
    end_ns = max((look.end_ns for look in looks), default=start_ns)
    seen_ns = wait_for_sample_after(end_ns, telemetry)
    seen = Observation(
        stage=stage,
        target=site.target,
        load_runs=tuple(load_runs),
        telemetry=telemetry.window(start_ns, end_ns, seen_ns=seen_ns),
        probes=run_probes(run, stage, engines_up=True),
        faults=faults,
        excluded=frozenset(run.ledger.quarantined(stage)),
        lag_limit_ms=lag_limit_ms(run),
        sample_gap_s=sample_gap_s(telemetry),
        profile=run.profile,
    )
    telemetry.flush()
    text = f"{stage}: {len(load_runs)} loads, telemetry every {telemetry.interval_s:g} s"
    run.record(
        "event", event="observed", stage=stage, text=text,
        sample_interval_s=telemetry.interval_s, telemetry_seen_ns=seen_ns,
    )  # fmt: skip
    for fault in faults:
        text = f"{fault.kind} on {fault.entity}: {fault.detail}"
        run.record("event", event="fault_timeline", stage=stage, text=text, timeline=asdict(fault))
    record_headline_metrics(run, seen)
    record_economy(run, seen)
    return seen


def wait_for_sample_after(end_ns: int, telemetry: Sampler) -> int:
    """Wait until the sampler has polled after the end of a load, so that its window is covered.

    Slow sources are polled now. Returns the moment until which every answering source was sampled.
    """
    telemetry.hurry()
    since_ns = max(end_ns, time.perf_counter_ns())
    deadline = since_ns + round((2 * telemetry.interval_s + _PATIENCE_S) * 1e9)
    while time.perf_counter_ns() < deadline and telemetry.last_look_ns <= since_ns:
        time.sleep(0.02)
    return telemetry.last_sample_ns


def sample_gap_s(telemetry: Sampler) -> float:
    """Return the longest pause between two samples that still counts as covered."""
    return max(1.5, 4 * telemetry.interval_s)
