"""`rackgate probes`: the tools that are understood, the probes that ship, and the schema for your own."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "probes", help="list hardware tools; schema and check of a site's probe", description=__doc__
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of a probe's output")
    parser.add_argument(
        "--check",
        type=Path,
        metavar="FILE",
        help="say what is wrong with an output (-: standard input)",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from rackgate.config.probe_output import output_schema

    if options.schema:
        sys.stdout.write(json.dumps(output_schema(), indent=2) + "\n")
        return 0
    if options.check is not None:
        return _check(options.check)
    sys.stdout.write(_catalogue())
    return 0


def _check(path: Path) -> int:
    from rackgate.probes.parsers import PARSERS
    from rackgate.probes.probe import BadOutput, ProbedNode

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
        values = PARSERS["site"](text, ProbedNode(name="node"))
    except (OSError, BadOutput) as error:
        sys.stderr.write(f"rackgate probes: {error}\n")
        return 1
    for value in values:
        text = f"no value: {value.reason}" if value.value is None else f"{value.value:g} {value.unit}"
        sys.stdout.write(f"{value.name} of {value.entity}: {text}\n")
    return 0


def _catalogue() -> str:
    from rackgate.config.acceptance_file import load_acceptance
    from rackgate.metrics.shipped import shipped_registry
    from rackgate.probes.tools import tools

    registry = shipped_registry()
    shipped = load_acceptance(None, "signoff", metrics=registry.metrics, target=None).probes
    lines = []
    for tool in tools().values():
        lines.append(f"{tool.name}: {tool.title}; {tool.says}")
        lines += [f"    {name} ({unit}): {tool.definitions[name]}" for name, unit in tool.units.items()]
        lines.append(f"    to get it: {tool.install}")
    lines.append("")
    for probe in shipped.values():
        metrics = ", ".join(f"probe.{probe.name}.{value}" for value in probe.values)
        lines.append(f"[probe.{probe.name}] per {probe.scope}: {metrics}")
    return "\n".join(lines) + "\n"
