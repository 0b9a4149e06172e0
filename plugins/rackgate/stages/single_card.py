"""Stage single_card: each load on each engine by itself, all engines side by side."""

from __future__ import annotations

from rackgate.metrics.observation import Observation
from rackgate.run.run import Run
from rackgate.stages.load_runs import named_loads, offer_load
from rackgate.stages.observing import observe
from rackgate.stages.site import Site
from rackgate.telemetry.sampler import Sampler

STAGE = "single_card"


def observe_single_card(run: Run, site: Site, telemetry: Sampler) -> Observation:
    """Offer the interactive load, then the others that rows name, to every engine that is not quarantined."""
    endpoints = [site.endpoint(engine) for engine in site.qualified(run, STAGE)]
    loads = named_loads(run, STAGE, "interactive") if endpoints else ()
    offered = [offer_load(run, site.target, STAGE, load, endpoints) for load in loads]
    return observe(run, site, STAGE, offered, telemetry)
