"""One simulated engine on its own, for the container image: the simulator's engine without a node around it.

usage: simulated_engine.py --port PORT --model MODEL [--host HOST] [--name NAME] [--knob NAME=JSON]...
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal

from rackgate.simulator.card_state import new_state, open_state
from rackgate.simulator.engine.scheduler import Scheduler
from rackgate.simulator.engine.server import EngineServer
from rackgate.simulator.http_server import HttpConnection
from rackgate.simulator.knobs import CardKnobs


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", default="engine")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--knob", action="append", default=[], metavar="NAME=JSON")
    arguments = parser.parse_args()
    knobs = CardKnobs(
        **{name: json.loads(value) for name, _, value in (k.partition("=") for k in arguments.knob)}
    )

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    server = EngineServer(
        entity=arguments.name,
        model=arguments.model,
        seed=arguments.seed,
        knobs=knobs,
        scheduler=Scheduler(loop, knobs, open_state(new_state(1), 1)[0]),
        loop=loop,
    )
    # As the first process of a container it gets no default action for SIGTERM.
    loop.add_signal_handler(signal.SIGTERM, loop.stop)
    loop.run_until_complete(
        loop.create_server(lambda: HttpConnection(server.handle), arguments.host, arguments.port, backlog=512)
    )
    print(f"{arguments.name} serves {arguments.model} on port {arguments.port}", flush=True)
    loop.run_forever()


if __name__ == "__main__":
    main()
