"""`rackgate engines`: the engines that are known, and how each is started."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackgate.engines.catalogue import CatalogueEntry


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("engines", help="list the engines of the catalogue", description=__doc__)
    parser.add_argument("name", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from rackgate.engines.catalogue import catalogue

    known = catalogue()
    unknown = [name for name in options.name if name not in known]
    if unknown:
        sys.stderr.write(f"rackgate engines: no engine {', '.join(unknown)}; valid: {', '.join(known)}\n")
        return 4
    chosen = [known[name] for name in options.name or known]
    if options.json:
        sys.stdout.write(json.dumps([_plain(entry) for entry in chosen], indent=2) + "\n")
    else:
        sys.stdout.write("\n\n".join(_text(entry) for entry in chosen) + "\n")
    return 0


def _plain(entry: CatalogueEntry) -> dict[str, Any]:
    plain = {item: getattr(entry, item) for item in entry.__dataclass_fields__}
    plain |= {item: dict(plain[item]) for item in ("options", "environment", "ulimits")}
    plain["failures"] = [asdict(known) for known in entry.failures]
    plain["progress"] = [asdict(mark) for mark in entry.progress]
    return plain


def _text(entry: CatalogueEntry) -> str:
    low, high = entry.cold_start_s
    rows = [
        ("image", entry.image),
        ("in a container", " ".join(entry.arguments)),
        ("as a process", " ".join(entry.command)),
        ("options", ", ".join(entry.options)),
        ("variables", ", ".join(f"{name}={value}" for name, value in entry.environment.items())),
        ("protocol", " or ".join(entry.protocols)),
        ("port", str(entry.port)),
        ("health", entry.health_path),
        ("metrics", entry.metrics_path),
        ("cold start", f"{low:g} to {high:g} s; given up after {entry.ready_timeout_s:g} s" if high else ""),
        ("loaded", entry.loaded),
        ("note", entry.note),
        ("known failures", ", ".join(known.name for known in entry.failures)),
    ]
    lines = [f"  {label:<16}{value}" for label, value in rows if value]
    return "\n".join([f"{entry.name}: {entry.title}", *lines])
