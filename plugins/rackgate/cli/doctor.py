"""`rackgate doctor`: say before the run what will run, what will be UNKNOWN and why, and what cures it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackgate.nouns.target import Target


_LIMIT_S = 6.0


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "doctor",
        help="say which checks will run, which will be UNKNOWN and what cures it",
        description=__doc__,
        epilog="Each input is tried once: exporters, hosts, logs, controllers, engines, tools. Nothing is"
        " started or changed. Exit code: 0 all will run, 1 something will be UNKNOWN or FAIL, 4 bad input.",
    )
    parser.add_argument("target", metavar="TARGET", help="a target file, local (this machine) or a URL")
    parser.add_argument("--model", default="", metavar="NAME", help="the model to ask for at a URL")
    parser.add_argument("--slo", type=Path, metavar="FILE", help="acceptance file, as for --rack-slo")
    parser.add_argument("--profile", default="smoke", help="as for --rack-profile; default: smoke")
    parser.add_argument(
        "--limit",
        type=float,
        default=_LIMIT_S,
        metavar="S",
        help=f"wait so long at most; default: {_LIMIT_S:g}",
    )
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from rackgate.checks.plan import plan_checks
    from rackgate.cli.doctor_output import as_json, as_text
    from rackgate.config.acceptance_file import load_acceptance
    from rackgate.config.problems import ConfigError
    from rackgate.doctor.forecast import Outlook, forecast, tools_of
    from rackgate.doctor.snapshot import take_snapshot
    from rackgate.metrics.shipped import shipped_registry

    registry = shipped_registry()
    try:
        target = _target(options.target, options.model)
        acceptance = load_acceptance(options.slo, options.profile, metrics=registry.metrics, target=target)
    except ConfigError as error:
        sys.stderr.write("".join(f"rackgate doctor: {line}\n" for line in str(error).splitlines()))
        return 4
    registry.add_probes(acceptance.probes)
    checks = plan_checks(target, acceptance.slos, metrics=registry.metrics, probes=acceptance.probes)
    snapshot = take_snapshot(target, tools_of(checks, registry.metrics), options.limit)
    forecasts = forecast(checks, registry.metrics, snapshot, options.profile)
    if options.json:
        whole = as_json(forecasts, snapshot, options.profile)
        sys.stdout.write(json.dumps(whole, indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(as_text(forecasts, snapshot, options.profile))
    return int(any(one.outlook in (Outlook.UNKNOWN, Outlook.FAIL) for one in forecasts))


def _target(source: str, model: str) -> Target:
    from rackgate.config.problems import ConfigError
    from rackgate.discovery.target_source import read_target
    from rackgate.engines.launchers import settings_checkers

    if source == "sim" or source.startswith("sim:"):
        raise ConfigError(
            [f"{source}: a run makes the simulated rack itself: there is nothing to examine before"]
        )
    return read_target(source, model, settings_checkers())
