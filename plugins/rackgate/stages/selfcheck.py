"""The load by which a run measures its load generator: as many streams as it is about to offer."""

from __future__ import annotations

from rackgate.loadgen.instrument.sizing import most_streams, sized, streams_of
from rackgate.nouns.load import Load
from rackgate.run.run import Run

_ON_EACH_ENGINE = ("single_card", "two_card")


def reference_of(run: Run) -> tuple[Load, str]:
    """Return the reference load at the size of the largest load that rows of this run name, and say so.

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
    sizes = {name: streams_of(loads[name], count) for name, count in planned if name and name != "reference"}
    largest = max(sizes, key=lambda name: sizes[name], default="")
    load = sized(reference, sizes.get(largest, 0))
    text = f"{load.planned_requests} requests to a reference server, about {streams_of(load, 1)} at once"
    if not largest:
        return load, text
    text += f"; load {largest} has {sizes[largest]}"
    return load, text + (f", {most_streams()} are tried at most" if sizes[largest] > most_streams() else "")
