"""The protocol of every fault: intend, inject, prove, observe, heal, prove healed. Each step is recorded.

The caller measures around it: the baseline before the block of `inject`, the observation inside it, and the
new baseline after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rackgate.nouns.engine import Engine
from rackgate.nouns.fault import Fault, FaultTimeline
from rackgate.run.run import Run


class NotAllowed(Exception):
    """The target does not allow this kind of entity to be broken."""


class UnknownFault(Exception):
    """No fault of this kind is registered."""


@dataclass(slots=True, kw_only=True)
class Injection:
    """A fault in progress; each step adds its time to `timeline`."""

    run: Run
    fault: Fault
    timeline: FaultTimeline

    def step(self, moment: str, act: Callable[[], bool | None]) -> bool:
        """Take and record one step; return whether it succeeded, which a step that raises did not."""
        self.run.say(f"fault {self.fault.kind} on {self.fault.entity}: {moment}")
        try:
            done = act() is not False
            detail = "" if done else f"{moment} not seen"
        except Exception as error:  # noqa: BLE001  the boundary that turns a broken fault into UNKNOWN, on record
            done, detail = False, f"{moment}: {type(error).__name__}: {error}"
        if detail:
            details = "; ".join(part for part in (self.timeline.detail, detail) if part)
            self.timeline = replace(self.timeline, detail=details)
        self.record(moment, ok=done, detail=detail)
        return done

    def record(self, moment: str, *, ok: bool, detail: str = "") -> None:
        """Write the record of one step."""
        fault = self.fault
        self.run.record("fault", fault=fault.kind, entity=fault.entity, moment=moment, ok=ok, detail=detail)


@contextmanager
def inject(run: Run, kind: str, engine: Engine, *, deadline_s: float | None = None) -> Iterator[Injection]:
    """Inject and prove on entering; heal and prove the healing on leaving, also after an exception.

    `deadline_s` bounds each proof; None for the agreed recovery time of a kill. A step that raises is
    recorded as failed, and checks that rest on a missing proof are UNKNOWN. Before anything is injected or
    recorded, raises `NotAllowed` if the target's `may_break` does not name engines, `UnknownFault` if no
    fault of this kind is registered, and what the fault raises for an engine that it cannot break (`kill` a
    `TypeError`).
    """
    fault = _fault(run, kind, engine, deadline_s)
    injection = Injection(run=run, fault=fault, timeline=FaultTimeline(kind=kind, entity=fault.entity))
    injection.record("intend", ok=True)
    try:
        injected_ns = time.perf_counter_ns()
        if injection.step("inject", fault.inject):
            injection.timeline = replace(injection.timeline, injected_ns=injected_ns)
            if injection.step("prove", fault.prove):
                injection.timeline = replace(injection.timeline, proven_ns=time.perf_counter_ns())
        yield injection
    finally:
        if injection.step("heal", fault.heal):
            injection.timeline = replace(injection.timeline, healed_ns=time.perf_counter_ns())
            if injection.step("prove_healed", fault.prove_healed):
                injection.timeline = replace(injection.timeline, proven_healed_ns=time.perf_counter_ns())
        run.faults = (*run.faults, injection.timeline)


def _fault(run: Run, kind: str, engine: Engine, deadline_s: float | None) -> Fault:
    if "engine" not in run.target.may_break:
        raise NotAllowed(
            f"target {run.target.name} does not allow engines to be broken: may_break = ['engine']"
        )
    if kind not in run.registry.faults:
        known = ", ".join(sorted(run.registry.faults))
        raise UnknownFault(f"no fault '{kind}' is registered; there are: {known}")
    return run.registry.faults[kind](engine, _recovery_time_s(run) if deadline_s is None else deadline_s)


def _recovery_time_s(run: Run) -> float:
    """Return the agreed recovery time after a kill, three minutes without such a row."""
    row = run.acceptance.slo("fault_injection.kill_recovery")
    return row.bound if row is not None else 180.0
