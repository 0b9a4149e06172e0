"""Stage batch_retry: a batch whose runner is killed and run again, and the kernel events of the whole run."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import replace

import httpx

from rackgate.batch.exercise import BatchExercise, exercise_batch
from rackgate.engines.client import http_client
from rackgate.engines.metrics_page import metrics_page
from rackgate.engines.route_options import arguments_of
from rackgate.metrics.observation import Observation
from rackgate.nouns.measurement import ProbeResults, Reason
from rackgate.nouns.target import Target
from rackgate.run.run import Run
from rackgate.stages.observing import sample_gap_s, wait_for_sample_after
from rackgate.stages.site import Site
from rackgate.telemetry.kernel.run_events import RUN_FIELDS, event_entries, judged_of_run, probe_run
from rackgate.telemetry.sampler import Sampler

SHIPPED_RUNNER = (
    *(sys.executable, "-m", "rackgate.batch.runner"),
    *("--input", "{input}", "--output", "{output}", "--url", "{url}", "--model", "{model}"),
)
"""The runner that ships, used where the target names no batch command of its own."""


STAGE = "batch_retry"


def observe_batch_retry(run: Run, site: Site, telemetry: Sampler) -> Observation:
    """Exercise the batch system once, and collect the kernel events since the run began."""
    return Observation(
        stage=STAGE,
        target=site.target,
        batch=run_batch(run, site, tasks=60, kill_at=0.5),
        probes=kernel_events_of_run(run, site.target, telemetry),
        profile=run.profile,
    )


def _shipped(site: Site) -> tuple[str, ...]:
    gateway = site.target.gateway
    front = gateway or site.target.engines[0]
    key = ("--api-key-env", front.api_key_env) if front.api_key_env else ()
    return (*SHIPPED_RUNNER, *key, *arguments_of(front.route))


def run_batch(run: Run, site: Site, *, tasks: int, kill_at: float) -> BatchExercise:
    """Exercise the target's batch command against its gateway, or against the first engine that qualified."""
    fronts = site.front(run, STAGE)
    if not fronts:
        return BatchExercise(report=None, reason=Reason.UNREACHABLE, detail="no engine is left to ask")
    front = fronts[0]
    command = site.target.batch.command if site.target.batch else _shipped(site)
    run.say(f"{STAGE}: {tasks} tasks, killed at {kill_at:.0%}, retried twice")
    return exercise_batch(
        command,
        url=front.url,
        model=front.model,
        workdir=run.evidence / "logs",
        tasks=tasks,
        kill_at=kill_at,
        seed=run.seed,
        served=lambda: _served(site),
    )


def kernel_events_of_run(run: Run, target: Target, telemetry: Sampler) -> ProbeResults:
    """Return what the nodes' kernels logged since the run began, between loads too; record each event.

    An event's record names the stage in which it came, and the fault of ours that explains it.
    """
    end_ns = time.perf_counter_ns()
    wait_for_sample_after(end_ns, telemetry)
    window = (run.log.started_ns, end_ns)
    table = telemetry.window(*window, fields=RUN_FIELDS)
    judged = judged_of_run(target, table, window, faults=run.faults, profile=run.profile)
    for moment_ns, entry in event_entries(judged, target):
        run.record("event", event="kernel", stage=run.log.stage_at(moment_ns), event_t_ns=moment_ns, **entry)
    return probe_run(judged, table, window, round(sample_gap_s(telemetry) * 1e9))


def _served(site: Site) -> int | None:
    """Return how many requests the engines have finished by their own count; None if one does not tell."""
    total = 0
    for engine in site.engines.values():
        page_of = metrics_page(replace(engine.spec, url=engine.url))
        if page_of is None:
            return None
        with http_client(page_of.url, page_of.route, headers=page_of.headers, timeout=2.0) as client:
            try:
                page = client.get(page_of.url)
            except httpx.HTTPError:
                return None
            counts = re.findall(r"(?m)^vllm:request_success_total(?:\{[^}]*\})? ([0-9.e+]+)$", page.text)
            if page.status_code != 200 or not counts:
                return None
            total += sum(int(float(count)) for count in counts)
    return total
