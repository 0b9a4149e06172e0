"""Stage cross_node: one-token calls through the gateway, to see which node answers how fast."""

from __future__ import annotations

from rackgate.metrics.observation import Observation
from rackgate.run.run import Run
from rackgate.stages.load_runs import named_loads, offer_load
from rackgate.stages.observing import observe
from rackgate.stages.site import Site
from rackgate.telemetry.sampler import Sampler

STAGE = "cross_node"


def observe_cross_node(run: Run, site: Site, telemetry: Sampler) -> Observation:
    """Offer one-token calls to the gateway, then the other loads that rows name."""
    endpoints = site.front(run, STAGE)
    loads = named_loads(run, STAGE, "calls") if endpoints else ()
    offered = [offer_load(run, site.target, STAGE, load, endpoints) for load in loads]
    return observe(run, site, STAGE, offered, telemetry)
