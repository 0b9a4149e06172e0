"""`rackgate bundle`: name everything that a target needs on a machine without a network."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackgate.engines.bundle import Need


_WORDS = {True: "here", False: "missing", None: "cannot tell"}


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "bundle",
        help="name what a target needs without a network",
        description=__doc__,
        epilog="`list` names it; `check` also says which is here, and its exit code is 1 unless all is.",
    )
    parser.add_argument("action", choices=("list", "check"))
    parser.add_argument("target", metavar="TARGET", help="a target file")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from rackgate.config.problems import ConfigError
    from rackgate.config.target_file import load_target
    from rackgate.engines.bundle import needs_of
    from rackgate.engines.launchers import settings_checkers

    try:
        needs = needs_of(load_target(Path(options.target), settings_checkers()))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 4
    checked = options.action == "check"
    if options.json:
        sys.stdout.write(json.dumps([asdict(need) for need in needs], indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{_text(need, checked=checked)}\n" for need in needs)
    return int(checked and any(need.here is not True for need in needs))


def _text(need: Need, *, checked: bool) -> str:
    state = f"{_WORDS[need.here]:<12}" if checked else ""
    return f"{state}{need.kind:<10}{need.name}  {need.detail}  (for {need.wanted_by})"
