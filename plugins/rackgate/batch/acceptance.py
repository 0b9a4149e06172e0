"""The batch exercise against a run's target."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rackgate.batch.exercise import BatchExercise, exercise_batch
from rackgate.measurement import Reason

if TYPE_CHECKING:
    from rackgate.run import Run
    from rackgate.site import Site

__all__ = ["SHIPPED_RUNNER", "run_batch"]

SHIPPED_RUNNER = (
    *(sys.executable, "-m", "rackgate.batch.runner"),
    *("--input", "{input}", "--output", "{output}", "--url", "{url}", "--model", "{model}"),
)
"""The runner that ships, used where the target names no batch command of its own."""


def _shipped(site: Site) -> tuple[str, ...]:
    gateway = site.target.gateway
    key = gateway.api_key_env if gateway else site.target.engines[0].api_key_env
    return (*SHIPPED_RUNNER, *(("--api-key-env", key) if key else ()))


def run_batch(run: Run, site: Site, *, tasks: int, kill_at: float) -> BatchExercise:
    """Exercise the target's batch command against its gateway, or against its first engine."""
    if not site.engines:
        return BatchExercise(report=None, reason=Reason.UNREACHABLE, detail="no engine came up")
    front = site.front()
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
    )
