"""One fault from intention to proven healing, every moment on record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rackgate.nouns.engine import Engine
from rackgate.nouns.fault import Fault, FaultTimeline
from rackgate.run.run import Run


class NotAllowed(Exception):
    """The target does not let this be broken."""


class UnknownFault(Exception):
    """No fault of this kind is registered."""


@dataclass(slots=True)
class Injection:
    """The fault in progress; `timeline` grows."""

    timeline: FaultTimeline


@contextmanager
def inject(run: Run, kind: str, engine: Engine, *, deadline_s: float | None = None) -> Iterator[Injection]:
    """Inject and prove on entering; heal and prove the healing on leaving, also after an exception.

    `deadline_s` bounds each proof; None for the time that was agreed for the recovery from a kill. A step
    that raises is recorded as not done: what is not proven makes its checks UNKNOWN. Before anything is
    done or recorded raises `NotAllowed` if the target's `may_break` does not name engines, `UnknownFault`
    if no fault of this kind is registered, and what the fault itself raises for an engine that it cannot
    break (`kill` a `TypeError`).
    """
    if "engine" not in run.target.may_break:
        raise NotAllowed(
            f"target {run.target.name} does not allow engines to be broken: may_break = ['engine']"
        )
    if kind not in run.registry.faults:
        known = ", ".join(sorted(run.registry.faults))
        raise UnknownFault(f"no fault '{kind}' is registered; there are: {known}")
    fault = run.registry.faults[kind](engine, _agreed_s(run) if deadline_s is None else deadline_s)
    injection = Injection(FaultTimeline(kind=kind, entity=fault.entity))
    _moment(run, fault, "intend", ok=True)
    try:
        begun_ns = time.perf_counter_ns()
        if _step(run, fault, "inject", fault.inject, injection):
            injection.timeline = replace(injection.timeline, injected_ns=begun_ns)
            if _step(run, fault, "prove", fault.prove, injection):
                injection.timeline = replace(injection.timeline, proven_ns=time.perf_counter_ns())
        yield injection
    finally:
        if _step(run, fault, "heal", fault.heal, injection):
            injection.timeline = replace(injection.timeline, healed_ns=time.perf_counter_ns())
            if _step(run, fault, "prove_healed", fault.prove_healed, injection):
                injection.timeline = replace(injection.timeline, proven_healed_ns=time.perf_counter_ns())
        run.faults = (*run.faults, injection.timeline)


def _agreed_s(run: Run) -> float:
    """Return what was agreed for the recovery from a kill, three minutes where nothing was."""
    row = run.acceptance.slo("fault_injection.kill_recovery")
    return row.bound if row is not None else 180.0


def _step(run: Run, fault: Fault, moment: str, act: Callable[[], bool | None], injection: Injection) -> bool:
    run.say(f"fault {fault.kind} on {fault.entity}: {moment}")
    try:
        done = act() is not False
        detail = "" if done else f"{moment} not seen"
    except Exception as error:  # noqa: BLE001  the boundary that turns a broken fault into UNKNOWN, on record
        done, detail = False, f"{moment}: {type(error).__name__}: {error}"
    if detail:
        told = "; ".join(part for part in (injection.timeline.detail, detail) if part)
        injection.timeline = replace(injection.timeline, detail=told)
    _moment(run, fault, moment, ok=done, detail=detail)
    return done


def _moment(run: Run, fault: Fault, moment: str, *, ok: bool, detail: str = "") -> None:
    run.record("fault", fault=fault.kind, entity=fault.entity, moment=moment, ok=ok, detail=detail)
