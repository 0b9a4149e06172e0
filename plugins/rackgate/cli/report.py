"""`rackgate report`: render the views of a finished run again, with no rack."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("report", help="render a run's report again", description=__doc__)
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the run folder")
    parser.add_argument("--view", default="again", help="written to RUN/views/VIEW (default: again)")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if not (options.run_folder / "evidence" / "records.jsonl").is_file():
        sys.stderr.write(f"rackgate report: {options.run_folder} holds no evidence/records.jsonl\n")
        return 4
    for path in write_views(options.run_folder, options.view):
        sys.stdout.write(f"{path}\n")
    return 0


def write_views(run_folder: Path, view: str) -> list[Path]:
    """Write every registered view of a run into `RUN/views/VIEW` and return the files."""
    modules = [point.load() for point in entry_points(group="pytest11") if point.name.startswith("rackgate")]
    reports: dict[str, Callable[..., str]] = {}
    for module in modules:
        if hasattr(module, "pytest_rack_reports"):
            module.pytest_rack_reports(config=None, register=reports.__setitem__)
    return [
        path
        for module in modules
        if hasattr(module, "pytest_rack_views")
        for path in module.pytest_rack_views(folder=run_folder, reports=reports, view=view)
    ]
