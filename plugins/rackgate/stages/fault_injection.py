"""Stage fault_injection: an engine is killed under load and restarted; the survivors are judged."""

from __future__ import annotations

import time

from rackgate.faults.injection import inject
from rackgate.loadgen.running import RunningLoad
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.nouns.engine import Killable
from rackgate.nouns.fault import FaultTimeline
from rackgate.run.run import Run
from rackgate.stages.load_runs import LookRequest, follow, offer_look
from rackgate.stages.observing import observe
from rackgate.stages.site import Site
from rackgate.telemetry.sampler import Sampler

STAGE = "fault_injection"


def observe_fault_injection(run: Run, site: Site, telemetry: Sampler) -> Observation:
    """Offer the fault load to the gateway, kill the last engine after a fifth of it, restart it at half."""
    load_runs, faults = offer_through_kill(run, site)
    return observe(run, site, STAGE, load_runs, telemetry, faults=faults)


def offer_through_kill(run: Run, site: Site) -> tuple[list[LoadRun], tuple[FaultTimeline, ...]]:
    """Offer the fault load around the kill of the last engine that can be killed.

    Nothing is offered where no engine can be killed from here beside another; the timeline says why.
    """
    load = run.acceptance.loads["fault"]
    engines = site.qualified(run, STAGE)
    killable = [engine for engine in engines if isinstance(engine.handle, Killable)]
    if not killable or len(engines) < 2:
        names = ", ".join(f"{engine.name} ({engine.spec.launcher})" for engine in engines) or "none is left"
        text = f"no engine can be killed from here beside another one: {names}"
        return [], (FaultTimeline(kind="kill", entity="", detail=text),)
    victim, length_s = killable[-1], load.duration_s or 0.0
    run.say(f"{STAGE}: load fault for {length_s:g} s, kill of {victim.entity}")
    timelines: list[FaultTimeline] = []

    def kill_and_restart(running: RunningLoad) -> None:
        started = time.monotonic()
        follow(run, running, load, until=started + length_s / 5)
        with inject(run, "kill", victim) as injection:
            follow(run, running, load, until=started + length_s / 2)
        timelines.append(injection.timeline)

    request = LookRequest(stage=STAGE, load=load, endpoints=tuple(site.front(run, STAGE)))
    look = offer_look(run, site.target, request, kill_and_restart)
    return [LoadRun(load=load.name, label=request.label, looks=(look,))], tuple(timelines)
