"""Tables of a target file: keys, types and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from rackgate.config.fields import (
    Digest,
    HostPort,
    Metrics,
    MigLayout,
    Name,
    NonNegative,
    Pci,
    ProtocolName,
    ProxyUrl,
    Table,
    Url,
)
from rackgate.nouns.route import Route
from rackgate.nouns.slo import Vantage

UNREAD = "?"
"""Placeholder of a missing or invalid name; no name is valid as this."""

CARDS_UNREAD = -1
"""Placeholder of an invalid number of cards."""

_TableT = TypeVar("_TableT", bound=BaseModel)


class About(Table):
    """`[target]`: the rack's name, the model of requests, what the tester sees and may break.

    A target without an engine needs no model. `simulated` grades the evidence as that of simulated engines.
    """

    name: Name
    model: str | None = Field(default=None, min_length=1)
    vantage: Vantage = "operator"
    may_break: list[Literal["engine"]] = []
    simulated: bool = False


class CardTable(Table):
    """`[[node.card]]`."""

    index: int = Field(ge=0)
    uuid: str | None = None
    serial: str | None = None
    pci: Pci | None = None
    sku: str | None = None


class ExpectTable(Table):
    """`[expect]` for all nodes, `[node.expect]` for one: versions and parts that were ordered."""

    driver: str | None = None
    cuda: str | None = None
    kernel: str | None = None
    os: str | None = None
    fabric_manager: str | None = None
    container_toolkit: str | None = None
    nic_firmware: str | None = None
    vbios: str | None = None
    part: str | None = None
    firmware: dict[str, str] = {}
    processes: list[str] = []
    nvlinks: int | None = Field(default=None, ge=0)
    infiniband_ports: int | None = Field(default=None, ge=1)
    infiniband_rate: int | None = Field(default=None, ge=1)
    partition: str | None = Field(default=None, pattern="^0x[0-9a-fA-F]{1,4}$")
    fabric: bool | None = None
    imex_nodes: int | None = Field(default=None, ge=1)
    mig: MigLayout | None = None
    nvme_drives: int | None = Field(default=None, ge=0)
    images: dict[str, Digest] = {}
    container_image: str | None = Field(default=None, min_length=1)


class StorageTable(Table):
    """`[storage]`: the path that models are loaded from, the same on every node."""

    path: str = Field(pattern="^/")


class NodeTelemetryTable(Table):
    """`[node.telemetry]`: the source of the cards' signals, and the way into the host."""

    cards: Literal["exporter", "prometheus", "nvml", "nvidia-smi"] | None = None
    ssh: str | None = Field(default=None, min_length=1)
    docker: str | None = Field(default=None, min_length=1)
    docker_image: str | None = Field(default=None, min_length=1)
    local: bool = False
    sudo: bool = False
    kernel_log: str | None = Field(default=None, min_length=1)


class RedfishTable(Table):
    """`[node.redfish]`: the node's management controller."""

    url: Url
    user_env: str = Field(min_length=1)
    password_env: str = Field(min_length=1)
    session: bool = True
    ca: str | None = None
    pinned: str | None = None


class TelemetryTable(Table):
    """`[telemetry]`: a Prometheus that scrapes the rack, and the configuration file of `ssh`."""

    prometheus: Url | None = None
    prometheus_key_env: str | None = Field(default=None, min_length=1)
    ssh_config: str | None = None


class NodeTable(Table):
    """`[[node]]`: `cards = N`, or one `[[node.card]]` for each card where serials are known."""

    name: Name
    cards: int = Field(default=0, ge=0)
    sku: str | None = None
    vendor: Literal["nvidia", "amd"] | None = None
    card: list[CardTable] = []
    exporter: Url | None = None
    telemetry: NodeTelemetryTable | None = None
    redfish: RedfishTable | None = None
    expect: ExpectTable = ExpectTable()

    @property
    def listed(self) -> list[CardTable]:
        """The table of each card."""
        return self.card or [CardTable(index=index) for index in range(self.cards)]


class RouteTable(Table):
    """`[engine.route]`, `[gateway.route]`: trust, client certificate, proxy and headers."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    proxy: ProxyUrl | None = None
    headers: dict[str, str] = {}

    @model_validator(mode="after")
    def _readable_files(self) -> Self:
        problems = self.to_route().problems
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def to_route(self) -> Route:
        """Return the route."""
        return Route(
            ca_file=self.ca, certificate_file=self.certificate, key_file=self.key, proxy=self.proxy,
            headers=self.headers,
        )  # fmt: skip


class EngineTable(Table):
    """`[[engine]]`: an engine, its cards, and how it is started or found.

    `node` is the node of an engine without a card.
    """

    name: Name
    launcher: str
    model: str | None = None
    protocol: ProtocolName = "openai"
    pool: Name = "gpu"
    url: Url | None = None
    api_key_env: str | None = None
    metrics: Metrics | None = None
    node: Name | None = None
    cards: list[str] = []
    offers: list[Literal["completions", "structured_output", "tool_calls"]] = []
    served_by: list[str] = []
    route: RouteTable | None = None
    settings: dict[str, Any] = {}


class GatewayTable(Table):
    """`[gateway]`: the address that users call, or how to start it in front of the engines."""

    launcher: str = "remote"
    url: Url | None = None
    api_key_env: str | None = None
    served_by_header: str = "x-served-by"
    route: RouteTable | None = None
    settings: dict[str, Any] = {}


class BatchTable(Table):
    """`[batch]`: the command that runs a JSONL batch."""

    command: list[str] = Field(min_length=1)


class PricesTable(Table):
    """`[prices]`."""

    currency: str
    card_hour: NonNegative | None = None
    kwh: NonNegative | None = None


class LoadMachinesTable(Table):
    """`[load_machines]`: a Ray cluster whose nodes offer the load in place of this machine."""

    ray: HostPort
    nodes: list[str] = []
    workers: int | None = Field(default=None, ge=1)


class TargetFile(Table):
    """The whole file."""

    target: About
    node: list[NodeTable] = []
    engine: list[EngineTable] = []
    gateway: GatewayTable | None = None
    batch: BatchTable | None = None
    prices: PricesTable | None = None
    telemetry: TelemetryTable = TelemetryTable()
    expect: ExpectTable = ExpectTable()
    storage: StorageTable | None = None
    load_machines: LoadMachinesTable | None = None


def readable(data: Mapping[str, Any]) -> TargetFile:
    """Return the readable part of a file with mistakes, so that its contradictions are reported too."""
    gateway, telemetry = data.get("gateway"), data.get("telemetry")
    return TargetFile.model_construct(
        node=[_readable(NodeTable, table) for table in _tables(data.get("node"))],
        engine=[_readable(EngineTable, table) for table in _tables(data.get("engine"))],
        gateway=_readable(GatewayTable, gateway) if isinstance(gateway, dict) else None,
        telemetry=_readable(TelemetryTable, telemetry if isinstance(telemetry, dict) else {}),
    )


def _tables(value: Any) -> list[Any]:
    return [table if isinstance(table, dict) else {} for table in value] if isinstance(value, list) else []


def _readable(model: type[_TableT], raw: Mapping[str, Any]) -> _TableT:
    """Return a table with its valid fields; an invalid address or required field becomes `UNREAD`."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        bad = {item["loc"][0] for item in error.errors()}
    good = {name: value for name, value in raw.items() if name in model.model_fields and name not in bad}
    lost = [
        name
        for name, field in model.model_fields.items()
        if name in bad & {"url", "launcher"} or (field.is_required() and name not in good)
    ]
    placeholder = {name: "http://unread" if name == "url" else "unread" for name in lost}
    unread: dict[str, Any] = dict.fromkeys(lost, UNREAD)
    if bad & {"card", "cards"} and model is NodeTable:
        unread["cards"] = CARDS_UNREAD
    return model.model_validate({**good, **placeholder}).model_copy(update=unread)
