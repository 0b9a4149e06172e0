"""Asks the probes while the cards are still free, then looks at every engine, the gateway and every card."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rackgate.observation import Observation
    from rackgate.run import Run
    from rackgate.site import Site


@pytest.fixture(scope="package")
def observation(rack_run: Run, request: pytest.FixtureRequest) -> Observation:
    """Run the tools that rows ask for, start the engines, and probe them, gateway, exporters and hosts."""
    from rackgate.engine_look import probe_apis, probe_engines, probe_gateway
    from rackgate.observation import Observation
    from rackgate.preflight import probe_cards, probe_nodes
    from rackgate.probes.stage import probe_stage

    tools = probe_stage(rack_run, "preflight", engines_up=False)
    rack_engines: Site = request.getfixturevalue("rack_engines")
    rack_run.on_progress(f"preflight: {len(rack_engines.target.engines)} engines, gateway, exporters, hosts")
    engines = probe_engines(rack_engines)
    probes = {
        **tools,
        **engines,
        **probe_apis(rack_engines, engines),
        **probe_gateway(rack_engines),
        **probe_cards(rack_engines.target),
        **probe_nodes(rack_engines.target, rack_engines.process_groups, profile=rack_run.profile),
    }
    return Observation(stage="preflight", target=rack_engines.target, probes=probes, profile=rack_run.profile)
