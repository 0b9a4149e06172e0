"""Target files: `rack.toml` to a `Target`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from rackgate.config.engine_kinds import with_kinds
from rackgate.config.fields import http_url
from rackgate.config.problems import ConfigError, problems_of, read_toml
from rackgate.config.target_consistency import CheckSettings, contradictions
from rackgate.config.target_tables import (
    About,
    EngineTable,
    ExpectTable,
    GatewayTable,
    NodeTable,
    RedfishTable,
    TargetFile,
    readable,
)
from rackgate.nouns.node import Card, Expect, Node, NodeAccess, Redfish, vendor_of
from rackgate.nouns.route import DIRECT
from rackgate.nouns.target import BatchSystem, EngineSpec, Gateway, LoadMachines, Member, Prices, Target


def load_target(path: Path, launchers: Mapping[str, CheckSettings]) -> Target:
    """Return the target of a file; raises `ConfigError` with all its problems."""
    return parse_target(read_toml(path), str(path), launchers)


def parse_target(data: Mapping[str, Any], file: str, launchers: Mapping[str, CheckSettings]) -> Target:
    """Return the target of parsed TOML; raises `ConfigError` with all its problems."""
    data, problems = with_kinds(data, file)
    if problems:
        raise ConfigError(problems)
    parsed = None
    try:
        parsed = TargetFile.model_validate(data)
    except ValidationError as error:
        problems += problems_of(error, TargetFile, file)
    problems += [f"{file}: {problem}" for problem in _missing_parts(data)]
    written = parsed or readable(data)
    problems += [f"{file}: {problem}" for problem in contradictions(written, launchers)]
    if parsed is None or problems:
        raise ConfigError(problems)
    model = parsed.target.model or ""
    engines = tuple(_engine(table, model) for table in parsed.engine)
    machines = parsed.load_machines
    return Target(
        name=parsed.target.name,
        model=model,
        grade=_grade(parsed.target, engines),
        nodes=tuple(_node(table, parsed.expect) for table in parsed.node),
        engines=engines,
        gateway=_gateway(parsed.gateway) if parsed.gateway else None,
        batch=BatchSystem(command=tuple(parsed.batch.command)) if parsed.batch else None,
        prices=Prices(**parsed.prices.model_dump()) if parsed.prices else None,
        vantage=parsed.target.vantage,
        may_break=tuple(parsed.target.may_break),
        prometheus_url=parsed.telemetry.prometheus,
        prometheus_key_env=parsed.telemetry.prometheus_key_env,
        ssh_config=parsed.telemetry.ssh_config,
        storage_path=parsed.storage.path if parsed.storage else None,
        load_machines=LoadMachines(ray=machines.ray, nodes=tuple(machines.nodes), workers=machines.workers)
        if machines
        else None,
        source=file,
    )


def _missing_parts(data: Mapping[str, Any]) -> list[str]:
    """Return the parts that the engines of a file, or a file without engines, still need."""
    about, engines = data.get("target"), data.get("engine", [])
    if engines == []:
        if not data.get("node"):
            return [
                "engine: missing: one [[engine]], or a [[node]] of which preflight looks at the machine alone"
            ]
        return ["gateway: needs an [[engine]] behind it"] if "gateway" in data else []
    return ["target.model: missing"] if isinstance(about, dict) and "model" not in about else []


def endpoint_target(url: str, model: str, *, source: str) -> Target:
    """Return the target of one running endpoint, seen from outside."""
    spec = EngineSpec(name="endpoint", launcher="remote", model=model, url=http_url(url), pool="gpu")
    return Target(
        name=urlsplit(url).hostname or "endpoint",
        model=model,
        grade="unproven",
        engines=(spec,),
        vantage="endpoint",
        source=source,
    )


def _grade(about: About, engines: tuple[EngineSpec, ...]) -> str:
    """Return the grade of evidence; `unproven` without engines, without declared cards, or from outside."""
    if about.simulated:
        return "simulated"
    if (
        not engines
        or about.vantage == "endpoint"
        or any(not one.cards and one.pool != "cpu" for one in engines)
    ):
        return "unproven"
    return "cpu" if all(engine.pool == "cpu" for engine in engines) else "accelerator"


def _expect(rack: ExpectTable, own: ExpectTable) -> Expect:
    """Return the expectations of a node: its own keys replace those for all nodes."""
    given = {**rack.model_dump(exclude_unset=True), **own.model_dump(exclude_unset=True)}
    given |= {"firmware": {**rack.firmware, **own.firmware}, "images": {**rack.images, **own.images}}
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if name in Expect.__dataclass_fields__
    }
    return Expect(pins={name: value for name, value in given.items() if name not in fields}, **fields)


def _node(table: NodeTable, rack: ExpectTable) -> Node:
    return Node(
        name=table.name,
        exporter_url=table.exporter,
        access=_access(table),
        expect=_expect(rack, table.expect),
        cards=tuple(
            Card(
                name=f"{table.name}/gpu{card.index}",
                node=table.name,
                index=card.index,
                uuid=card.uuid,
                serial=card.serial,
                pci=card.pci,
                sku=card.sku or table.sku,
                vendor=table.vendor or vendor_of(card.sku or table.sku),
            )
            for card in table.listed
        ),
    )


def _access(table: NodeTable) -> NodeAccess:
    given = table.telemetry.model_dump() if table.telemetry else {}
    return NodeAccess(**given, redfish=_redfish(table.redfish) if table.redfish else None)


def _redfish(table: RedfishTable) -> Redfish:
    given = table.model_dump(exclude={"ca", "pinned"})
    return Redfish(**given, ca_file=table.ca, pinned_file=table.pinned)


def _gateway(table: GatewayTable) -> Gateway:
    given = table.model_dump(exclude={"route"})
    return Gateway(**given, route=table.route.to_route() if table.route else DIRECT)


def _engine(table: EngineTable, model: str) -> EngineSpec:
    by_node: dict[str, list[str]] = {table.node: []} if table.node else {}
    for card in table.cards:
        by_node.setdefault(card.split("/")[0], []).append(card)
    return EngineSpec(
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
        route=table.route.to_route() if table.route else DIRECT,
        members=tuple(Member(node=node, cards=tuple(cards)) for node, cards in by_node.items()),
        settings=table.settings,
    )
