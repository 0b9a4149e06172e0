"""Contradictions in a target file: cards, names and addresses that are used twice or do not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from rackgate.config.problems import nearest
from rackgate.config.target_tables import CARDS_UNREAD, UNREAD, EngineTable, TargetFile
from rackgate.engines.gateway_backends import EACH, named_backends

CheckSettings = Callable[[Mapping[str, object]], Sequence[str]]
"""Returns the problems of a launcher's own table of settings."""

_RESERVED = ("gateway", "rack")
"""Entities of every run; their names are not free."""

_PORTS = {"http": 80, "https": 443}


def contradictions(parsed: TargetFile, launchers: Mapping[str, CheckSettings]) -> list[str]:
    """Return one line for each contradiction; an `UNREAD` field contradicts nothing."""
    problems = _twice("node", [node.name for node in parsed.node])
    problems += _twice("engine", [engine.name for engine in parsed.engine])
    problems += _twice("served_by", [name for engine in parsed.engine for name in set(engine.served_by)])
    for table in parsed.node:
        problems += _twice(f"node {table.name}: card", [str(card.index) for card in table.card])
        if table.card and table.cards not in (0, CARDS_UNREAD, len(table.card)):
            problems.append(f"node {table.name}: cards = {table.cards} but {len(table.card)} [[node.card]]")
    problems += _telemetry(parsed)
    problems += _names(parsed)
    problems += _cards(parsed)
    for index, engine in enumerate(parsed.engine):
        problems += [f"engine[{index}].{problem}" for problem in _launching(engine, launchers)]
    problems += _gateway(parsed, launchers)
    return problems + _addresses(parsed)


def _twice(what: str, names: list[str]) -> list[str]:
    return [
        f"{what} '{name}' is declared twice"
        for name in dict.fromkeys(names)
        if name != UNREAD and names.count(name) > 1
    ]


def _telemetry(parsed: TargetFile) -> list[str]:
    """Return the sources of signals without a way to reach them."""
    problems = []
    prometheus = parsed.telemetry.prometheus
    for index, node in enumerate(parsed.node):
        asked, where = node.telemetry, f"node[{index}].telemetry"
        if asked is None:
            continue
        ways = [name for name in ("local", "ssh", "docker") if getattr(asked, name)]
        if len(ways) > 1:
            problems.append(f"{where}: {' and '.join(ways)}: one of them")
        if bool(asked.docker) != bool(asked.docker_image):
            problems.append(f"{where}: docker and docker_image: both or none")
        if asked.cards == "prometheus" and not prometheus:
            problems.append(f"{where}.cards: 'prometheus' needs [telemetry] prometheus")
        if asked.cards == "exporter" and not node.exporter:
            problems.append(f"{where}.cards: 'exporter' needs the node's exporter")
        if asked.cards == "nvml" and not asked.local:
            problems.append(f"{where}.cards: 'nvml' reads this machine: it needs local = true")
        if asked.cards == "nvidia-smi" and not ways:
            problems.append(f"{where}.cards: 'nvidia-smi' needs local = true, ssh or docker")
    return problems


def _names(parsed: TargetFile) -> list[str]:
    """Return the names that two entities of a run would share: a check's identity names its entity."""
    nodes = {node.name: "a node" for node in parsed.node}
    pools = {engine.pool: "a pool" for engine in parsed.engine}
    every_run = dict.fromkeys(_RESERVED, "a name that every run uses itself")
    problems = []
    for index, node in enumerate(parsed.node):
        problems += _taken(f"node[{index}].name", node.name, every_run)
    for index, engine in enumerate(parsed.engine):
        problems += _taken(f"engine[{index}].name", engine.name, {**nodes, **pools, **every_run})
        problems += _taken(f"engine[{index}].pool", engine.pool, {**nodes, **every_run})
    return problems


def _taken(where: str, name: str, others: Mapping[str, str]) -> list[str]:
    return [f"{where}: '{name}' is {others[name]}: choose another name"] if name in others else []


def _cards(parsed: TargetFile) -> list[str]:
    known = {f"{node.name}/gpu{card.index}" for node in parsed.node for card in node.listed}
    nodes = {node.name for node in parsed.node}
    unread = {node.name for node in parsed.node if node.cards == CARDS_UNREAD}
    problems = []
    taken: dict[str, str] = {}
    for index, engine in enumerate(parsed.engine):
        if engine.node is not None and engine.cards:
            problems.append(f"engine[{index}].node: its cards say it: leave it out")
        elif engine.node is not None and engine.node not in nodes and UNREAD not in nodes:
            problems.append(f"engine[{index}].node: no node '{engine.node}'{nearest(engine.node, nodes)}")
        for card in engine.cards:
            node = card.split("/")[0]
            doubtful = node in unread or (UNREAD in nodes and node not in nodes)
            if card in taken:
                problems.append(f"engine[{index}].cards: {card} is already taken by engine {taken[card]}")
            elif card not in known and not doubtful:
                problems.append(f"engine[{index}].cards: no card '{card}'{nearest(card, known)}")
            taken.setdefault(card, engine.name)
    return problems


def _launching(engine: EngineTable, launchers: Mapping[str, CheckSettings]) -> list[str]:
    if engine.launcher == UNREAD:
        return []
    if engine.launcher not in launchers:
        return [f"launcher: no launcher '{engine.launcher}'{nearest(engine.launcher, launchers)}"]
    problems = [f"settings: {text}" for text in launchers[engine.launcher](engine.settings)]
    if engine.launcher == "remote" and engine.url is None:
        problems.append("url: missing (launcher 'remote' needs it)")
    return problems


def _gateway(parsed: TargetFile, launchers: Mapping[str, CheckSettings]) -> list[str]:
    gateway = parsed.gateway
    if gateway is None or gateway.launcher == UNREAD:
        return []
    if gateway.launcher == "remote":
        problems = [] if gateway.url else ["gateway.url: missing (launcher 'remote' needs it)"]
        if gateway.settings:
            problems.append("gateway.settings: launcher 'remote' has none: it starts nothing")
        return problems
    if gateway.launcher not in launchers:
        return [f"gateway.launcher: no launcher '{gateway.launcher}'{nearest(gateway.launcher, launchers)}"]
    problems = [f"gateway.settings: {text}" for text in launchers[gateway.launcher](gateway.settings)]
    if gateway.url:
        problems.append(f"gateway.url: launcher '{gateway.launcher}' starts it: it is known only then")
    if "members" in gateway.settings:
        problems.append("gateway.settings.members: a gateway has none")
    known = {engine.name for engine in parsed.engine}
    problems += [
        f"gateway.settings: no engine '{name}' behind it{nearest(name, [*known, EACH])}"
        for name in named_backends(gateway.settings)
        if name not in known | {EACH} and UNREAD not in known
    ]
    return problems


def _addresses(parsed: TargetFile) -> list[str]:
    """Return the addresses that are given twice: one server would be counted as two."""
    given = [(f"engine[{index}].url", engine.url) for index, engine in enumerate(parsed.engine)]
    given += [(f"node[{index}].exporter", node.exporter) for index, node in enumerate(parsed.node)]
    given.append(("gateway.url", parsed.gateway.url if parsed.gateway else None))
    problems = []
    first: dict[tuple[object, ...], str] = {}
    for where, url in given:
        if url is None or url == UNREAD:
            continue
        place = _place(url)
        if place in first:
            problems.append(f"{where}: {url} is also the address of {first[place]}")
        first.setdefault(place, where)
    return problems


def _place(url: str) -> tuple[object, ...]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:  # no number: the check of the launcher reports it
        return (url,)
    return (parts.scheme, parts.hostname, port or _PORTS.get(parts.scheme), parts.path.rstrip("/"))
