"""`rackgate scenarios`: what can be wrong with the simulated rack, and which checks must see it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackgate.simulator.scenarios import Scenario


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("scenarios", help="list the simulated rack's scenarios", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from rackgate.simulator.scenarios import scenarios

    known = scenarios().values()
    if options.json:
        sys.stdout.write(json.dumps([_plain(scenario) for scenario in known], indent=2) + "\n")
        return 0
    for scenario in known:
        sys.stdout.write(f"{scenario.name}\n    {scenario.summary}\n")
        for proof in scenario.proofs:
            sys.stdout.write(f"    {proof.verdict:<8}{proof.entity}: {', '.join(proof.checks)}\n")
    return 0


def _plain(scenario: Scenario) -> dict[str, Any]:
    proofs = [asdict(proof) for proof in scenario.proofs]
    return {"name": scenario.name, "summary": scenario.summary, "proofs": proofs}
