"""Stage soak: the production mix, by a schedule, for as long as the profile says."""

from __future__ import annotations

from rackgate.metrics.observation import Observation
from rackgate.run.run import Run
from rackgate.stages.load_runs import named_loads, offer_load
from rackgate.stages.observing import observe
from rackgate.stages.site import Site
from rackgate.telemetry.sampler import Sampler

STAGE = "soak"


def observe_soak(run: Run, site: Site, telemetry: Sampler) -> Observation:
    """Offer the mix where users come in, then the other loads that rows name."""
    endpoints = site.front(run, STAGE)
    loads = named_loads(run, STAGE, "mix") if endpoints else ()
    offered = [offer_load(run, site.target, STAGE, load, endpoints) for load in loads]
    return observe(run, site, STAGE, offered, telemetry)
