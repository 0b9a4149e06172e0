"""`rackgate init`: write a first target file from what is found on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackgate.discovery.machine import Machine


_DEFAULT_FILE = "rack.toml"


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "init",
        help="write a first target file from what is found here",
        description=__doc__,
        epilog="Cards, links, engines and exporters that listen, containers. Nothing is started or changed.",
    )
    file = parser.add_mutually_exclusive_group()
    file.add_argument("file", nargs="?", metavar="FILE", help=f"default: {_DEFAULT_FILE}; - prints it")
    file.add_argument("--out", metavar="FILE", help="the same as FILE")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    parser.add_argument(
        "--host-root", type=Path, metavar="DIR", help="a folder that stands in for this machine"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from rackgate.discovery.inspection import inspect_machine
    from rackgate.discovery.rack_file import rack_text
    from rackgate.hosts.runner import RootRunner

    file = options.file or options.out or _DEFAULT_FILE
    path = Path(file)
    if file != "-" and path.exists() and not options.force:
        sys.stderr.write(f"rackgate init: {path} is there already: name another FILE, or --force\n")
        return 2
    if options.host_root is not None and not options.host_root.is_dir():
        sys.stderr.write(f"rackgate init: --host-root={options.host_root}: no such folder\n")
        return 4
    machine = inspect_machine(RootRunner(options.host_root) if options.host_root else None)
    text = rack_text(machine)
    if file == "-":
        sys.stdout.write(text)
        return 0
    try:
        with path.open("w" if options.force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        sys.stderr.write(f"rackgate init: {path} cannot be written: {error.strerror}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in _summary(machine, path)))
    return 0


def _summary(machine: Machine, path: Path) -> list[str]:
    inventory, engines = machine.inventory, machine.of_kind("engine")
    names = ", ".join(dict.fromkeys(card.name for card in inventory.cards if card.name))
    lines = [f"wrote {path}"]
    if inventory.cards:
        names = names or "no name told"
        lines.append(f"  cards      {len(inventory.cards)} ({names}), told by {inventory.source}")
    else:
        lines.append("  cards      none found; to look at, in this order:")
        lines += [f"             {step.name}: {step.text}" for step in machine.triage if not step.ok]
    lines.append(f"  engines    {_engines(machine)}")
    exporters = ", ".join(service.url for service in machine.of_kind("exporter"))
    lines.append(f"  exporter   {exporters or 'none listens here'}")
    lines += [f"  note       {note}" for note in machine.notes if not note.startswith("exporter")]
    lines += ["", f"next: rackgate doctor {path}"]
    if not engines:
        lines.append(f"      pytest -m rack_acceptance --rack-target={path} --rack-stage=preflight")
    return lines


def _engines(machine: Machine) -> str:
    engines = machine.of_kind("engine")
    listed = ", ".join(f"{engine.url} ({', '.join(engine.models[:2])})" for engine in engines[:4])
    more = f" and {len(engines) - 4} more" if len(engines) > 4 else ""
    return f"{listed}{more}" if engines else "none listens here"
