"""The batch exercise against a run's target."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

from rackgate.batch.exercise import BatchExercise, exercise_batch
from rackgate.engines.route_options import arguments_of
from rackgate.nouns.measurement import Reason
from rackgate.run.run import Run
from rackgate.stages.site import Site

SHIPPED_RUNNER = (
    *(sys.executable, "-m", "rackgate.batch.runner"),
    *("--input", "{input}", "--output", "{output}", "--url", "{url}", "--model", "{model}"),
)
"""The runner that ships, used where the target names no batch command of its own."""


def _shipped(site: Site) -> tuple[str, ...]:
    gateway = site.target.gateway
    front = gateway or site.target.engines[0]
    key = ("--api-key-env", front.api_key_env) if front.api_key_env else ()
    return (*SHIPPED_RUNNER, *key, *arguments_of(front.route))


def run_batch(run: Run, site: Site, *, tasks: int, kill_at: float) -> BatchExercise:
    """Exercise the target's batch command against its gateway, or against the first engine that qualified."""
    fronts = site.front(run, "batch_retry")
    if not fronts:
        return BatchExercise(report=None, reason=Reason.UNREACHABLE, detail="no engine is left to ask")
    front = fronts[0]
    command = site.target.batch.command if site.target.batch else _shipped(site)
    run.on_progress(f"batch_retry: {tasks} tasks, killed at {kill_at:.0%}, retried twice")
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


def _served(site: Site) -> int | None:
    """Return how many requests the engines have finished by their own count; None if one does not tell."""
    import httpx

    from rackgate.engines.client import http_client
    from rackgate.engines.metrics_page import metrics_page

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
