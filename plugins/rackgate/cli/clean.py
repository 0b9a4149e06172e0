"""`rackgate clean`: name what dead runs of this user left behind, and remove it."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackgate.engines.launchers.containers.daemon import Daemon
    from rackgate.engines.leftovers.leftovers import Leftover
    from rackgate.nouns.target import Target


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "clean",
        help="remove what dead runs of this user left behind",
        description=__doc__,
        epilog="Only what carries our labels or is in our launch records, belongs to this user on this "
        "machine, and whose run is dead, is touched. Exit code 1: something could not be removed.",
    )
    parser.add_argument("--list", action="store_true", help="only name it")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--docker-host", action="append", default=[], metavar="ADDRESS", help="look at this daemon too"
    )
    parser.add_argument("--target", metavar="FILE", help="look at this target's daemons and clusters too")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from rackgate.config.problems import ConfigError
    from rackgate.config.target_file import load_target
    from rackgate.engines.launchers import settings_checkers
    from rackgate.engines.leftovers.leftovers import find_leftovers, remove

    try:
        target = load_target(Path(options.target), settings_checkers()) if options.target else None
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 4
    daemons = _daemons(options.docker_host, target)
    removals = [(left, partial(remove, left)) for left in find_leftovers(daemons)]
    removals += _in_clusters(target)
    outcomes = [
        (left, "left" if options.list else "removed" if removal() else "still there")
        for left, removal in removals
    ]
    if options.json:
        plain = [{**_plain(left), "outcome": outcome} for left, outcome in outcomes]
        sys.stdout.write(json.dumps(plain, indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{outcome}: {_text(left)}\n" for left, outcome in outcomes)
        if not outcomes:
            sys.stdout.write("nothing was left behind\n")
    return int(any(outcome == "still there" for _, outcome in outcomes))


def _daemons(addresses: list[str], target: Target | None) -> list[Daemon]:
    """Return the daemons of the user, the options and the target, each once."""
    from rackgate.engines.bundle import daemons_of
    from rackgate.engines.launchers.containers.daemon import NoDaemon, choose_daemon

    found = {}
    for address in [None, *addresses]:
        try:
            daemon = choose_daemon(address)
        except NoDaemon as error:
            sys.stderr.write(f"rackgate clean: {error}\n")
            continue
        found[daemon.address] = daemon
    if target is not None:
        found |= {daemon.address: daemon for daemon in daemons_of(target)}
    return list(found.values())


def _in_clusters(target: Target | None) -> list[tuple[Leftover, partial[bool]]]:
    """Return the leftovers in the clusters of a target, each with its removal."""
    from rackgate.engines.launchers.pods.cluster import ClusterRefused
    from rackgate.engines.leftovers.cluster import find_in, namespaces_of, remove_from

    pairs = []
    for namespace in namespaces_of(target) if target is not None else ():
        try:
            pairs += [(left, partial(remove_from, namespace, left)) for left in find_in(namespace)]
        except ClusterRefused as error:
            sys.stderr.write(f"rackgate clean: namespace {namespace.name}: {error}\n")
    return pairs


def _plain(left: Leftover) -> dict[str, Any]:
    return {
        "kind": left.kind,
        "id": left.ident,
        "engine": left.engine,
        "run": left.run_id,
        "owner_pid": left.owner_pid,
        "detail": left.detail,
        "daemon": left.daemon.address if left.daemon else None,
    }


def _text(left: Leftover) -> str:
    return f"{left.detail} (engine {left.engine}, run {left.run_id}, started by process {left.owner_pid})"
