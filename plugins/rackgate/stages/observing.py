"""The measuring that stages share: rounds of pairs, a load through a kill, telemetry of the window."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

from rackgate.loadgen import Endpoint, RunningLoad
from rackgate.metrics.observation import Observation, Offer
from rackgate.nouns.engine import Engine
from rackgate.nouns.entities import pairs_of
from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.measurement import Measurement
from rackgate.nouns.target import Target
from rackgate.run.economy import record_economy
from rackgate.run.headline_metrics import record_five_numbers
from rackgate.run.run import Run
from rackgate.stages.load_runs import follow, lag_limit_ms, offer_look
from rackgate.stages.probe_runs import probe_stage
from rackgate.stages.site import Site
from rackgate.telemetry.sampler import Sampler

_PATIENCE_S = 3.0


def observe(
    run: Run,
    site: Site,
    stage: str,
    offers: Sequence[Offer],
    telemetry: Sampler,
    *,
    faults: tuple[FaultTimeline, ...] = (),
) -> Observation:
    """Return what a stage saw, with the telemetry of its loads, and record the five numbers.

    Probes that its rows ask for are run when its loads are over.
    """
    looks = [look for offer in offers for look in offer.looks if look.end_ns]
    start_ns = min((look.start_ns for look in looks), default=time.perf_counter_ns())
    end_ns = max((look.end_ns for look in looks), default=start_ns)
    seen_ns = _wait_for_a_sample_after(end_ns, telemetry)
    seen = Observation(
        stage=stage,
        target=site.target,
        offers=tuple(offers),
        telemetry=telemetry.window(start_ns, end_ns, seen_ns=seen_ns),
        probes=probe_stage(run, stage, engines_up=True),
        faults=faults,
        excluded=frozenset(run.ledger.quarantined(stage)),
        lag_limit_ms=lag_limit_ms(run),
        sample_gap_s=_sample_gap_s(telemetry),
        profile=run.profile,
    )
    telemetry.flush()
    text = f"{stage}: {len(offers)} loads, telemetry every {telemetry.interval_s:g} s"
    run.record(
        "event", event="observed", stage=stage, text=text,
        sample_interval_s=telemetry.interval_s, telemetry_seen_ns=seen_ns,
    )  # fmt: skip
    for fault in faults:
        text = f"{fault.kind} on {fault.entity}: {fault.detail}"
        run.record("event", event="fault_timeline", stage=stage, text=text, timeline=asdict(fault))
    record_five_numbers(run, seen)
    record_economy(run, seen)
    return seen


def _wait_for_a_sample_after(end_ns: int, telemetry: Sampler) -> int:
    """Let the sampler see the end of the load, so that the window's last edge is covered.

    Sources that are asked seldom are asked now. Return until when every source that answers has been seen.
    """
    telemetry.hurry()
    since_ns = max(end_ns, time.perf_counter_ns())
    deadline = since_ns + round((2 * telemetry.interval_s + _PATIENCE_S) * 1e9)
    while time.perf_counter_ns() < deadline and telemetry.last_look_ns <= since_ns:
        time.sleep(0.02)
    return telemetry.last_sample_ns


def whole_run(run: Run, target: Target, telemetry: Sampler) -> dict[tuple[str, str], Measurement]:
    """Return what the kernels of the nodes told since the run began, between loads too; record each event.

    An event's record says in which stage it came, and which fault of ours explains it.
    """
    from rackgate.telemetry.kernel.run_events import RUN_FIELDS, judged_of_run, probe_run, told_of_run

    end_ns = time.perf_counter_ns()
    _wait_for_a_sample_after(end_ns, telemetry)
    window = (run.started_ns, end_ns)
    table = telemetry.window(*window, fields=RUN_FIELDS)
    judged = judged_of_run(target, table, window, faults=run.faults, profile=run.profile)
    for moment_ns, entry in told_of_run(judged, target):
        run.record(
            "event", event="kernel", stage=run.stage_at(moment_ns), event_t_ns=moment_ns, **entry
        )  # fmt: skip
    return probe_run(judged, table, window, round(_sample_gap_s(telemetry) * 1e9))


def _sample_gap_s(telemetry: Sampler) -> float:
    return max(1.5, 4 * telemetry.interval_s)


def pair_rounds(run: Run, site: Site) -> list[tuple[str, list[Endpoint]]]:
    """Return (label, endpoints) rounds: first cards alone, second cards alone, both; nodes side by side.

    A node with several pairs works through them one after the other.
    """
    fit = {engine.entity: engine for engine in site.qualified(run, "two_card")}
    by_node: dict[str, list[tuple[Engine, Engine]]] = {}
    for first, second in pairs_of(site.target):
        if first.entity in fit and second.entity in fit:
            by_node.setdefault(first.nodes[0], []).append((fit[first.entity], fit[second.entity]))
    rounds: list[tuple[str, list[Endpoint]]] = []
    for number in range(max((len(pairs) for pairs in by_node.values()), default=0)):
        pairs = [found[number] for found in by_node.values() if len(found) > number]
        rounds += [
            ("alone", [site.endpoint(first) for first, _ in pairs]),
            ("alone", [site.endpoint(second) for _, second in pairs]),
            ("both", [site.endpoint(engine) for pair in pairs for engine in pair]),
        ]
    return rounds


def offer_through_kill(run: Run, site: Site) -> tuple[list[Offer], tuple[FaultTimeline, ...]]:
    """Offer the fault load; kill the last engine that can be killed after a fifth of it, restart it at half.

    Where no engine can be killed from here beside another one, nothing is offered and the fault says why.
    """
    from rackgate.faults.injection import inject
    from rackgate.nouns.engine import Killable

    load = run.acceptance.loads["fault"]
    engines = site.qualified(run, "fault_injection")
    able = [engine for engine in engines if isinstance(engine.handle, Killable)]
    if not able or len(engines) < 2:
        names = ", ".join(f"{engine.name} ({engine.spec.launcher})" for engine in engines) or "none is left"
        text = f"no engine can be killed from here beside another one: {names}"
        return [], (FaultTimeline(kind="kill", entity="", detail=text),)
    victim, length_s = able[-1], load.duration_s or 0.0
    run.on_progress(f"fault_injection: load fault for {length_s:g} s, kill of {victim.entity}")
    endpoints = site.front(run, "fault_injection")

    timelines: list[FaultTimeline] = []

    def kill_and_restart(running: RunningLoad) -> None:
        started = time.monotonic()
        follow(run, running, load, until=started + length_s / 5)
        with inject(run, "kill", victim) as injection:
            follow(run, running, load, until=started + length_s / 2)
        timelines.append(injection.timeline)

    offered = offer_look(
        run, site.target, "fault_injection", load, endpoints, label="all", meanwhile=kill_and_restart
    )
    return [Offer(load=load.name, label="all", looks=(offered,))], tuple(timelines)
