"""Which loads a stage offers, and what is wrong with one before it is offered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rackgate.loadgen import Endpoint
from rackgate.nouns.load import Load
from rackgate.run.run import Run


def loads_of(run: Run, stage: str, first: str) -> tuple[str, ...]:
    """Return the loads of a stage: its own one, then each that a row names and will be judged by."""
    asked = [
        check.slo.load
        for check in run.ledger.planned.values()
        if check.slo.stage == stage
        and check.slo.load is not None
        and not (check.declared_absent or check.not_assessed or check.undecidable)
        and run.ledger.gated_by(check) is None
    ]
    return tuple(dict.fromkeys([first, *asked]))


def tell_left_out(run: Run, stage: str, load: Load) -> None:
    """Record which lines of the load's trace are left out, because they are no requests."""
    from rackgate.loadgen.requests.trace import trace_of

    trace = trace_of(load)
    if trace is not None and trace.why:
        text = f"{stage}: load {load.name}: {trace.why}"
        run.event("trace_left_out", text)
        run.on_progress(text)


def too_long(load: Load, endpoints: Sequence[Endpoint]) -> str:
    """Return why the load is longer than the context of its endpoints; empty if it fits, or none tells."""
    from rackgate.engines.context import context_of
    from rackgate.loadgen.running import checked

    if load.context_tokens is not None:
        return ""
    try:
        checked(replace(load, context_tokens=context_of(endpoints)))
    except ValueError as error:
        return f"{error} (so says /v1/models): nothing was offered"
    return ""
