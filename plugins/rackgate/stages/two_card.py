"""Stage two_card: one load on each card of a pair alone, then on both together."""

from __future__ import annotations

from rackgate.metrics.observation import Observation
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.engine import Engine
from rackgate.nouns.entities import pairs_of
from rackgate.run.run import Run
from rackgate.stages.load_runs import named_loads, offer_load
from rackgate.stages.observing import observe
from rackgate.stages.site import Site
from rackgate.telemetry.sampler import Sampler

STAGE = "two_card"


def observe_two_card(run: Run, site: Site, telemetry: Sampler) -> Observation:
    """Offer the scaling load, then the others that rows name, in the rounds of `pair_rounds`."""
    offered = [
        offer_load(run, site.target, STAGE, load, endpoints, label=label)
        for load in named_loads(run, STAGE, "scaling")
        for label, endpoints in pair_rounds(run, site)
    ]
    return observe(run, site, STAGE, offered, telemetry)


def pair_rounds(run: Run, site: Site) -> list[tuple[str, list[Endpoint]]]:
    """Return (label, endpoints) of each round: first cards alone, second cards alone, both.

    Pairs of one node take turns, pairs of different nodes work side by side.
    """
    fit = {engine.entity: engine for engine in site.qualified(run, STAGE)}
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
