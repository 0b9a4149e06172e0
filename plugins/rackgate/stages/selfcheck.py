"""Stage selfcheck: the load generator's own error against a reference server."""

from __future__ import annotations

from rackgate.loadgen.instrument.reference import measure_instrument
from rackgate.loadgen.sizing import concurrent_streams, max_streams, scaled_reference
from rackgate.metrics.observation import Observation
from rackgate.nouns.load import Load
from rackgate.run.run import Run
from rackgate.stages.load_runs import lag_limit_ms, record_look

STAGE = "selfcheck"
_ON_EACH_ENGINE = ("single_card", "two_card")


def observe_selfcheck(run: Run) -> Observation:
    """Offer the reference load once and compare every reported TTFT with the true one."""
    load, size = reference_load(run)
    run.say(f"{STAGE}: {size}")
    run.event("reference_load", f"{STAGE}: {size}")
    instrument = measure_instrument(
        load,
        samples_path=run.log.sample_file(f"{STAGE}.reference"),
        instrument_fault=run.instrument_fault,
        seed=run.seed,
    )
    if instrument.offered is not None:
        record_look(run, STAGE, instrument.offered)
    return Observation(stage=STAGE, target=run.target, instrument=instrument, lag_limit_ms=lag_limit_ms(run))


def reference_load(run: Run) -> tuple[Load, str]:
    """Return the reference load, as large as the largest load of this run, and its size in words.

    It is never smaller than agreed, and never larger than this machine can stamp.
    """
    reference = run.acceptance.loads["reference"]
    loads = run.acceptance.loads
    engines = len(run.target.engines)
    planned = {
        (check.slo.load, engines if check.slo.stage in _ON_EACH_ENGINE else 1)
        for check in run.ledger.planned.values()
        if check.slo.load in loads and not (check.declared_absent or check.not_assessed)
    }
    sizes = {
        name: concurrent_streams(loads[name], count)
        for name, count in planned
        if name and name != "reference"
    }
    largest = max(sizes, key=lambda name: sizes[name], default="")
    load = scaled_reference(reference, sizes.get(largest, 0))
    text = (
        f"{load.planned_requests} requests to a reference server, about {concurrent_streams(load, 1)} at once"
    )
    if not largest:
        return load, text
    text += f"; load {largest} has {sizes[largest]}"
    return load, text + (f", {max_streams()} are tried at most" if sizes[largest] > max_streams() else "")
