"""`rack.toml` -> `Target`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from rackgate.config.engine_kinds import with_kinds
from rackgate.config.problems import ConfigError, problems_of, read_toml
from rackgate.config.target_contradictions import contradictions
from rackgate.config.target_fields import http_url
from rackgate.config.target_tables import (
    About,
    EngineTable,
    ExpectTable,
    GatewayTable,
    LoadMachinesTable,
    NodeTable,
    RedfishTable,
    TargetFile,
    readable,
)
from rackgate.nouns import node as node_nouns
from rackgate.nouns import target as nouns
from rackgate.nouns.route import DIRECT

CheckSettings = Callable[[Mapping[str, object]], list[str]]
"""Returns what is wrong with a launcher's own table."""


def load_target(path: Path, launchers: Mapping[str, CheckSettings]) -> nouns.Target:
    """Return the target of a file; raises `ConfigError` with all its problems."""
    return parse_target(read_toml(path), str(path), launchers)


def parse_target(data: Mapping[str, Any], file: str, launchers: Mapping[str, CheckSettings]) -> nouns.Target:
    """Return the target of parsed TOML; raises `ConfigError` with all its problems."""
    data, problems = with_kinds(data, file)
    if problems:
        raise ConfigError(problems)
    parsed = None
    try:
        parsed = TargetFile.model_validate(data)
    except ValidationError as error:
        problems += problems_of(error, TargetFile, file)
    problems += [f"{file}: {problem}" for problem in _unserved(data)]
    written = readable(data) if parsed is None else parsed
    problems += [f"{file}: {problem}" for problem in contradictions(written, launchers)]
    if parsed is None or problems:
        raise ConfigError(problems)
    nodes = tuple(_node(table, parsed.expect) for table in parsed.node)
    model = parsed.target.model or ""
    engines = tuple(_engine(table, model) for table in parsed.engine)
    return nouns.Target(
        name=parsed.target.name,
        model=model,
        grade=_grade(parsed.target, engines),
        nodes=nodes,
        engines=engines,
        gateway=_gateway(parsed.gateway) if parsed.gateway else None,
        batch=nouns.BatchSystem(command=tuple(parsed.batch.command)) if parsed.batch else None,
        prices=nouns.Prices(**parsed.prices.model_dump()) if parsed.prices else None,
        vantage=parsed.target.vantage,
        may_break=tuple(parsed.target.may_break),
        prometheus_url=parsed.telemetry.prometheus if parsed.telemetry else None,
        prometheus_key_env=parsed.telemetry.prometheus_key_env if parsed.telemetry else None,
        ssh_config=parsed.telemetry.ssh_config if parsed.telemetry else None,
        storage_path=parsed.storage.path if parsed.storage else None,
        load_machines=_load_machines(parsed.load_machines) if parsed.load_machines else None,
        source=file,
    )


def _unserved(data: Mapping[str, Any]) -> list[str]:
    """Return what is missing for the engines that the file has, or has not."""
    about, engines = data.get("target"), data.get("engine", [])
    if engines == []:
        if not data.get("node"):
            return [
                "engine: missing: one [[engine]], or a [[node]] of which preflight looks at the machine alone"
            ]
        return ["gateway: needs an [[engine]] behind it"] if "gateway" in data else []
    return ["target.model: missing"] if isinstance(about, dict) and "model" not in about else []


def endpoint_target(url: str, model: str, *, source: str) -> nouns.Target:
    """Return a target that is one running endpoint, seen from outside."""
    spec = nouns.EngineSpec(name="endpoint", launcher="remote", model=model, url=http_url(url), pool="gpu")
    return nouns.Target(
        name=urlsplit(url).hostname or "endpoint",
        model=model,
        grade="unproven",
        engines=(spec,),
        vantage="endpoint",
        source=source,
    )


def _load_machines(table: LoadMachinesTable) -> nouns.LoadMachines:
    return nouns.LoadMachines(ray=table.ray, nodes=tuple(table.nodes), workers=table.workers)


def _grade(about: About, engines: tuple[nouns.EngineSpec, ...]) -> str:
    """Return what the evidence is worth: no engine, no declared card, or seen from outside, is `unproven`."""
    if about.simulated:
        return "simulated"
    if (
        not engines
        or about.vantage == "endpoint"
        or any(not one.cards and one.pool != "cpu" for one in engines)
    ):
        return "unproven"
    return "cpu" if all(engine.pool == "cpu" for engine in engines) else "accelerator"


def _expect(rack: ExpectTable, own: ExpectTable) -> node_nouns.Expect:
    """Return what a node was ordered with: its own words before those for all nodes."""
    given = {**rack.model_dump(exclude_unset=True), **own.model_dump(exclude_unset=True)}
    as_they_are = (
        *("nvlinks", "infiniband_ports", "infiniband_rate", "partition", "imex_nodes", "nvme_drives"),
        "container_image",
    )
    others = (*as_they_are, "firmware", "images", "processes", "fabric", "mig")
    mig = given.get("mig")
    return node_nouns.Expect(
        pins={name: value for name, value in given.items() if name not in others and value is not None},
        firmware={**rack.firmware, **own.firmware},
        images={**rack.images, **own.images},
        processes=tuple(given.get("processes", ())),
        fabric=bool(given.get("fabric")),
        mig=tuple(mig) if isinstance(mig, list) else mig,
        **{name: given.get(name) for name in as_they_are},
    )


def _node(table: NodeTable, rack: ExpectTable) -> node_nouns.Node:
    return node_nouns.Node(
        name=table.name,
        exporter_url=table.exporter,
        access=_access(table),
        expect=_expect(rack, table.expect),
        cards=tuple(
            node_nouns.Card(
                name=f"{table.name}/gpu{card.index}",
                node=table.name,
                index=card.index,
                uuid=card.uuid,
                serial=card.serial,
                pci=card.pci,
                sku=card.sku or table.sku,
                vendor=table.vendor or node_nouns.vendor_of(card.sku or table.sku),
            )
            for card in table.listed
        ),
    )


def _access(table: NodeTable) -> node_nouns.NodeAccess:
    given = table.telemetry.model_dump() if table.telemetry else {}
    return node_nouns.NodeAccess(**given, redfish=_redfish(table.redfish) if table.redfish else None)


def _redfish(table: RedfishTable) -> node_nouns.Redfish:
    return node_nouns.Redfish(
        url=table.url,
        user_env=table.user_env,
        password_env=table.password_env,
        session=table.session,
        ca_file=table.ca,
        pinned_file=table.pinned,
    )


def _gateway(table: GatewayTable) -> nouns.Gateway:
    given = table.model_dump(exclude={"route"})
    return nouns.Gateway(**given, route=table.route.noun() if table.route else DIRECT)


def _engine(table: EngineTable, model: str) -> nouns.EngineSpec:
    by_node: dict[str, list[str]] = {table.node: []} if table.node else {}
    for card in table.cards:
        by_node.setdefault(card.split("/")[0], []).append(card)
    return nouns.EngineSpec(
        name=table.name,
        launcher=table.launcher,
        model=table.model or model,
        protocol=table.protocol,
        pool=table.pool,
        url=table.url,
        api_key_env=table.api_key_env,
        metrics=table.metrics,
        offers=tuple(table.offers),
        served_by=tuple(table.served_by),
        route=table.route.noun() if table.route else DIRECT,
        members=tuple(nouns.Member(node=node, cards=tuple(cards)) for node, cards in by_node.items()),
        settings=table.settings,
    )
