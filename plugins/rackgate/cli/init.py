"""`rackgate init`: write a first target file from what is found on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from rackgate.discovery.machine import Machine


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "init",
        help="write a first target file from what is found here",
        description=__doc__,
        epilog="Cards, links, engines and exporters that listen, containers. Nothing is started or changed.",
    )
    parser.add_argument("--out", default="rack.toml", metavar="FILE", help="default: rack.toml; - prints it")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    parser.add_argument(
        "--host-root", type=Path, metavar="DIR", help="a folder that stands in for this machine"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from rackgate.discovery.look import look_at_this_machine
    from rackgate.discovery.rack_file import rack_text
    from rackgate.hosts.runner import RootRunner

    path = Path(options.out)
    if options.out != "-" and path.exists() and not options.force:
        sys.stderr.write(f"rackgate init: {path} is there already: --out another name, or --force\n")
        return 2
    if options.host_root is not None and not options.host_root.is_dir():
        sys.stderr.write(f"rackgate init: --host-root={options.host_root}: no such folder\n")
        return 4
    machine = look_at_this_machine(RootRunner(options.host_root) if options.host_root else None)
    text = rack_text(machine)
    if options.out == "-":
        sys.stdout.write(text)
        return 0
    try:
        with path.open("w" if options.force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        sys.stderr.write(f"rackgate init: {path} cannot be written: {error.strerror}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in _told(machine, path)))
    return 0


def _told(machine: Machine, path: Path) -> list[str]:
    found, engines = machine.found, machine.of_kind("engine")
    names = ", ".join(dict.fromkeys(card.name for card in found.cards if card.name))
    lines = [f"wrote {path}"]
    if found.cards:
        lines.append(f"  cards      {len(found.cards)} ({names or 'no name told'}), told by {found.source}")
    else:
        lines.append("  cards      none found; to look at, in this order:")
        lines += [f"             {step.name}: {step.text}" for step in machine.triage if not step.ok]
    lines.append(f"  engines    {_engines(machine)}")
    exporters = ", ".join(one.url for one in machine.of_kind("exporter"))
    lines.append(f"  exporter   {exporters or 'none listens here'}")
    lines += [f"  note       {note}" for note in machine.notes if not note.startswith("exporter")]
    lines += ["", f"next: rackgate doctor {path}"]
    if not engines:
        lines.append(f"      pytest -m rack_acceptance --rack-target={path} --rack-stage=preflight")
    return lines


def _engines(machine: Machine) -> str:
    engines = machine.of_kind("engine")
    listed = ", ".join(f"{one.url} ({', '.join(one.models[:2])})" for one in engines[:4])
    more = f" and {len(engines) - 4} more" if len(engines) > 4 else ""
    return f"{listed}{more}" if engines else "none listens here"
