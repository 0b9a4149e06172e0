"""The `rackgate` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rackgate import __version__
from rackgate.cli import (
    bundle,
    checks,
    clean,
    doctor,
    engines,
    init,
    judge,
    probes,
    report,
    scenarios,
    sim,
)
from rackgate.cli.load import command as load

__all__ = ["build_parser", "main"]

_COMMANDS = (init, doctor, sim, load, judge, checks, probes, scenarios, report, engines, bundle, clean)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command."""
    parser = argparse.ArgumentParser(
        prog="rackgate",
        description="Staged acceptance of a rack of accelerators for LLM inference."
        " The acceptance itself runs in pytest: pytest -m rack_acceptance.",
    )
    parser.add_argument("--version", action="version", version=f"rackgate {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in _COMMANDS:
        module.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 2 refused, 4 bad input."""
    options = build_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except BrokenPipeError:
        sys.stderr.close()
        return 0
