"""Run a simulated rack in the foreground, for a person or for a script that reads a line of JSON."""

from __future__ import annotations

import json
import os
import signal
from typing import IO

from rackgate.simulator.rack import SimulatedRack, start_rack
from rackgate.simulator.settings import RackSettings


def serve(settings: RackSettings, *, as_json: bool, stream: IO[str]) -> int:
    """Run the rack until SIGINT or SIGTERM and return the exit status.

    Once the rack is ready, writes a line of JSON or a text with commands to try. Call it in the main thread.
    """
    signals = (signal.SIGINT, signal.SIGTERM)
    with start_rack(settings) as rack:
        # Only after the start, since the rack's processes would inherit the mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        try:
            stream.write(_as_json(rack) if as_json else _as_text(rack))
            stream.flush()
            signal.sigwait(signals)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 0


def _as_json(rack: SimulatedRack) -> str:
    target = rack.target
    return (
        json.dumps(
            {
                "gateway": target.gateway.url if target.gateway else None,
                "engines": {engine.name: engine.url for engine in rack.engines},
                "exporters": {node.name: node.exporter_url for node in target.nodes},
                "controls": rack.control_urls,
                "model": target.model,
                "scenario": rack.scenario.name,
                "pid": os.getpid(),
            }
        )
        + "\n"
    )


def _as_text(rack: SimulatedRack) -> str:
    target = rack.target
    gateway = target.gateway.url if target.gateway else ""
    engines = "\n".join(f"  {engine.name:<14} {engine.url}" for engine in rack.engines)
    exporters = "\n".join(f"  {node.name:<14} {node.exporter_url}" for node in target.nodes)
    controls = "\n".join(f"  {node:<14} {url}" for node, url in rack.control_urls.items())
    body = json.dumps(
        {"model": target.model, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    )
    first_node, first_control = next(iter(rack.control_urls.items()))
    return f"""SIMULATED rack, {rack.settings.nodes}x{rack.settings.cards}, model {target.model}
scenario {rack.scenario.name}: {rack.scenario.summary}

gateway          {gateway}
engines
{engines}
exporters
{exporters}
control
{controls}

Try:
  curl -N {gateway}/v1/chat/completions -H 'content-type: application/json' -d '{body}'
  curl {gateway}/status
  curl {target.nodes[0].exporter_url}
  curl {first_control}/control/engines     # process ids on {first_node}: kill -9 one of them
  curl -X POST {first_control}/control/engines/gpu0/start

Ctrl-C ends it.
"""
