"""A route on a command line: the same options wherever an address is given."""

from __future__ import annotations

import argparse
from typing import Any

from rackgate.nouns.route import Route


def add_route_options(parser: Any) -> None:
    """Add the options to a parser or a group of one."""
    parser.add_argument("--ca", metavar="FILE", help="who may have signed the server's certificate")
    parser.add_argument("--certificate", metavar="FILE", help="what we show to the server")
    parser.add_argument("--key", metavar="FILE", help="its key, if it is in a file of its own")
    parser.add_argument("--proxy", metavar="URL", help="http://host:port, which is then measured too")
    parser.add_argument("--header", metavar="NAME=VALUE", action="append", default=[])


def route_of(options: argparse.Namespace) -> Route:
    """Return the route that the options describe. Raises `ValueError` with all that is wrong with it."""
    pairs = [text.partition("=") for text in options.header]
    problems = [f"--header: {name!r} is not NAME=VALUE" for name, found, _ in pairs if not (name and found)]
    if options.proxy is not None and not options.proxy.startswith("http://"):
        problems.append(f"--proxy: {options.proxy!r} is not http://host:port")
    route = Route(
        ca_file=options.ca, certificate_file=options.certificate, key_file=options.key, proxy=options.proxy,
        headers={name: value for name, _, value in pairs},
    )  # fmt: skip
    problems += route.problems
    if problems:
        raise ValueError("\n".join(problems))
    return route


def arguments_of(route: Route) -> tuple[str, ...]:
    """Return the options that describe a route."""
    named = {
        "--ca": route.ca_file, "--certificate": route.certificate_file, "--key": route.key_file,
        "--proxy": route.proxy,
    }  # fmt: skip
    given = [text for name, value in named.items() if value is not None for text in (name, value)]
    return (
        *given,
        *(text for name, value in route.headers.items() for text in ("--header", f"{name}={value}")),
    )
