"""Looks at hosts and asks the probes before anything is started, then at every engine, gateway and card."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rackgate.metrics.observation import Observation
    from rackgate.run.run import Run
    from rackgate.stages.site import Site


@pytest.fixture(scope="package")
def observation(rack_run: Run, request: pytest.FixtureRequest) -> Observation:
    """Look at hosts, run the tools that rows ask for, start the engines, and probe them and the cards.

    Where a host's module, driver, CUDA or container runtime fails, its engines are not started: they would
    only repeat at length what the host says.
    """
    from rackgate.metrics.observation import Observation
    from rackgate.preflight.card_memory import unaccounted_memory
    from rackgate.preflight.engines import probe_apis, probe_engines, probe_gateway
    from rackgate.preflight.hosts import look_into_nodes, who_answered
    from rackgate.preflight.nodes import (
        held_back,
        measured_hosts,
        measured_nodes,
        memory_before_engines,
        probe_cards,
        recorded_facts,
    )
    from rackgate.stages.probe_runs import probe_stage

    rack_run.on_progress(f"preflight: {len(rack_run.target.nodes)} hosts")
    hosts = look_into_nodes(rack_run.target, profile=rack_run.profile, hung=rack_run.hung)
    if hosts.facts:
        rack_run.event("hosts", who_answered(hosts))
        rack_run.on_progress(f"preflight: {who_answered(hosts)}")
    planned = rack_run.ledger.planned.values()
    rack_run.held = held_back(planned, measured_hosts(rack_run.target, hosts.facts))
    before = memory_before_engines(rack_run.target)
    tools = probe_stage(rack_run, "preflight", engines_up=False)
    rack_engines: Site = request.getfixturevalue("rack_engines")
    target = rack_engines.target
    rack_run.on_progress(f"preflight: {len(target.engines)} engines, gateway, exporters, controllers")
    nodes = measured_nodes(target, hosts, rack_engines.process_groups)
    for node, facts in recorded_facts(target, hosts.facts, nodes.firmware).items():
        rack_run.record("facts", node=node, facts=facts)
    engines = probe_engines(rack_engines)
    probes = {
        **tools,
        **engines,
        **probe_apis(rack_engines, engines),
        **probe_gateway(rack_engines),
        **probe_cards(target),
        **nodes.probes,
    }
    probes |= unaccounted_memory(target, probes, before)
    return Observation(stage="preflight", target=target, probes=probes, profile=rack_run.profile)
