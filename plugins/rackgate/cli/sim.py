"""`rackgate sim`: run a simulated rack to poke at."""

from __future__ import annotations

import argparse
import sys
from typing import Any


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("sim", help="run a simulated rack until Ctrl-C", description=__doc__)
    parser.add_argument("size", nargs="?", default="2x2", metavar="NODESxCARDS", help="default: 2x2")
    parser.add_argument(
        "--scenario", default="healthy", help="what is wrong with it (see: rackgate scenarios)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one line with all URLs once it serves")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from rackgate.simulator.foreground import serve
    from rackgate.simulator.settings import RackSettings

    try:
        nodes, cards = (int(part) for part in options.size.split("x"))
        settings = RackSettings(nodes=nodes, cards=cards, scenario=options.scenario, seed=options.seed)
        return serve(settings, as_json=options.json, stream=sys.stdout)
    except ValueError as error:
        sys.stderr.write(f"rackgate sim: {error}\n")
        return 4
